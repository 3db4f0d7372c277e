"""Writes data/tokenizer/kinds.json: a tokenizer of every kind of tokenizer_families.py, with texts, tokens and texts again.

    venv/bin/python tests/golden/tokenizer_kinds.py      # ten seconds; make_goldens.py does it too
"""
import hashlib
import json
import pathlib

import tokenizers

import tokenizer_families

# Families that keep their own rules and take the vocabulary of another, so that the file stays small.
SHARED = {name: "gpt2" for name in ("qwen3", "qwen35", "llama3", "roberta", "cl100k", "o200k", "tekken", "deepseek3", "kimi", "starcoder", "falcon", "digits3",
                                    "superbpe")} | {"gemma": "llama2", "mistral": "llama2"}
COUNT = 110
HARD = ["", " ", "a", "  Hello  world\n", "caf\u00e9 cafe\u0301 word words <left>  x <right>  y", "1234567 12 3", "\u4e2d\u6587abc\u304b\u3099", "<s>a</s> b<think>c", "\U0001f600\u00ff\u0101", "_" * 65,
        "a\u2581b\u2581\u2581c", "\t\r\n x", "\u00a9\u0301 \ufb01 \u00bd \uff21\u0301", "v\u00a0\u1aebx \u00a0\U00010efaa", "don't DON'T we'LL \u017f'\u017f"]


def entry(name, tok, models):
    tree = json.loads(tok.to_str())
    model = tree["model"]
    lists = {key: model.pop(key) for key in ("vocab", "merges") if key in model}
    source = SHARED.get(name, name)
    models.setdefault(source, lists)
    tree["model"] |= models[source]
    tok = tokenizers.Tokenizer.from_str(json.dumps(tree))
    texts = tokenizer_families.Strings(99, [t.content for t in tok.get_added_tokens_decoder().values()][:12])
    cases = []
    for text in HARD + [texts.one() for _ in range(COUNT)]:
        if len(text) > 80 or "\x00" in text:
            continue
        ids = tok.encode(text, add_special_tokens=False).ids
        cases.append([text, ids, tok.decode(ids, skip_special_tokens=False)])
    around = tok.encode("x", add_special_tokens=True).ids
    plain = tok.encode("x", add_special_tokens=False).ids
    at = next(i for i in range(len(around) - len(plain) + 1) if around[i:i + len(plain)] == plain)
    tree["model"] = {k: v for k, v in model.items() if k not in lists}
    return {"tokenizer": tree, "vocabulary": source, "around": [around[:at], around[at + len(plain):]], "cases": cases}


def write(data):
    models = {}
    order = ["gpt2", "llama2"] + [n for n in tokenizer_families.FAMILIES if n not in ("gpt2", "llama2")]
    kinds = {name: entry(name, tokenizer_families.FAMILIES[name](), models) for name in order}
    def compact(value):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))

    path = data / "tokenizer" / "kinds.json"
    parts = [f'"tokenizers": "{tokenizers.__version__}"', '"models": {\n' + ",\n".join(f"{compact(n)}: {compact(m)}" for n, m in models.items()) + "}",
             '"kinds": {\n' + ",\n".join(f"{compact(n)}: {compact(k)}" for n, k in kinds.items()) + "}"]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="ascii")
    return path


if __name__ == "__main__":
    DATA = pathlib.Path(__file__).resolve().parent / "data"
    made = write(DATA)
    manifest = json.loads((DATA / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"][made.relative_to(DATA).as_posix()] = {"bytes": made.stat().st_size, "sha256": hashlib.sha256(made.read_bytes()).hexdigest()}
    manifest["files"] = dict(sorted(manifest["files"].items()))
    (DATA / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(made, made.stat().st_size)
