"""Byte-level BPE tokenizers with the layout of Qwen3's tokenizer.json, trained from text.

Used for the trained checkpoint and for the tokenizer goldens.
"""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

# The two split patterns that the library supports. They differ only in \p{M}: the newer one keeps combining marks with their letters.
QWEN3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# (text, special): special tokens vanish under skip_special_tokens, the others do not.
CHAT_TOKENS = [
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<think>", False),
    ("</think>", False),
]


def train(lines, vocab_size, regex=QWEN3_REGEX, added=CHAT_TOKENS):
    """Train on `lines`; the added tokens take the last ids, so that vocab_size counts them."""
    tok = Tokenizer(models.BPE(byte_fallback=False, ignore_merges=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(lines, trainer)
    tok.add_tokens([
        AddedToken(text, special=special, normalized=False, single_word=False, lstrip=False, rstrip=False)
        for text, special in added
    ])
    assert tok.get_vocab_size() == vocab_size, tok.get_vocab_size()
    return tok


def save(tok, path, merges="pairs"):
    """Write tokenizer.json; merges as [a, b] pairs (what newer releases write) or as "a b" strings (what older ones wrote)."""
    tree = json.loads(tok.to_str())
    pairs = [m if isinstance(m, list) else m.split(" ") for m in tree["model"]["merges"]]
    tree["model"]["merges"] = pairs if merges == "pairs" else [" ".join(p) for p in pairs]
    write_json(path, tree, indent=None)
    # Read back what was written, so that callers use exactly the stored file.
    return Tokenizer.from_file(str(path))


def tokenizer_config(max_length, added=CHAT_TOKENS, first_added_id=0):
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(first_added_id + i): {
                "content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special,
            }
            for i, (text, special) in enumerate(added)
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": max_length,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def write_json(path, tree, indent=2):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        json.dump(tree, f, ensure_ascii=False, indent=indent)
        f.write("\n")
