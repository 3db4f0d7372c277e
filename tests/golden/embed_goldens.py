"""data/embed.json: vectors that the package sentence-transformers makes of texts with tests/golden/trained, and the files that it writes.

    venv/bin/pip install -r tests/golden/requirements.txt sentence-transformers==6.2.0
    venv/bin/python tests/golden/embed_goldens.py
"""
import json
import pathlib
import tempfile

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, models

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = ["In the beginning God created the heaven and the earth.", "And God said, Let there be light", "sea", "And it came to pass " * 40]
PROMPTS = {"query": "And he said unto them:", "document": ""}
FILES = ["modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"]
CASES = {  # pooling, normalised, prompts, the prompt used, whether its tokens count
    "last": ("lasttoken", True, None, None, True),
    "mean": ("mean", False, PROMPTS, "query", True),
    "mean_without_prompt": ("mean", True, PROMPTS, "query", False),
    "first": ("cls", True, None, None, True),
}


def case(mode, normalised, prompts, used, include):
    with tempfile.TemporaryDirectory() as plain:
        for file in (HERE / "trained").iterdir():
            (pathlib.Path(plain) / file.name).write_bytes(file.read_bytes())
        # Texts of a tokenizer with a chat template would be a user's messages.
        path = pathlib.Path(plain) / "tokenizer_config.json"
        tokenizer = json.loads(path.read_text())
        tokenizer.pop("chat_template")
        path.write_text(json.dumps(tokenizer))
        transformer = models.Transformer(plain, model_kwargs={"dtype": torch.float32})
    pooling = models.Pooling(transformer.get_embedding_dimension(), pooling_mode=mode, include_prompt=include)
    modules = [transformer, pooling] + ([models.Normalize()] if normalised else [])
    model = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    vectors = model.encode(TEXTS, prompt_name=used, convert_to_numpy=True, batch_size=1)
    with tempfile.TemporaryDirectory() as scratch:
        model.save(scratch)
        files = {name: (pathlib.Path(scratch) / name).read_text() for name in FILES}
    text = (prompts or {}).get(used, "")
    return {"prompt": used, "skip": 0 if include else len(model.tokenizer(text)["input_ids"]), "files": files,
            "tokens": [model.tokenizer(text + t)["input_ids"] for t in TEXTS],
            "vectors": [[float(x) for x in v.astype(np.float32)] for v in vectors]}


def main():
    torch.set_num_threads(1)
    cases = {name: case(*what) for name, what in CASES.items()}
    (HERE / "data/embed.json").write_text(json.dumps({"texts": TEXTS, "cases": cases}, separators=(",", ":")) + "\n")


main()
