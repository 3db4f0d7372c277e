"""Small tokenizers of every kind that models use, trained with the `tokenizers` package on our own text."""
import json
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import qwen_bpe
import tokenizer_goldens
import unicode_strings

LLAMA3 = qwen_bpe.QWEN3_REGEX.replace(r"\p{N}|", r"\p{N}{1,3}|")
UPPER, LOWER, LEAD = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[^\r\n\p{L}\p{N}]?"
SUFFIX, TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = f"{LEAD}{UPPER}*{LOWER}+{SUFFIX}|{LEAD}{UPPER}+{LOWER}*{SUFFIX}|" + r"\p{N}{1,3}" + TAIL
TEKKEN = f"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*|" + r"\p{N}" + TAIL
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
NOT_HAN = r"&&[^\p{Han}]]"
KIMI = (r"[\p{Han}]+|" + f"{LEAD}{UPPER[:-1]}{NOT_HAN}*{LOWER[:-1]}{NOT_HAN}+{SUFFIX}|{LEAD}{UPPER[:-1]}{NOT_HAN}+{LOWER[:-1]}{NOT_HAN}*{SUFFIX}"
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
ADDED = [AddedToken("<s>", special=True, normalized=False), AddedToken("</s>", special=True, normalized=False), AddedToken("<think>", normalized=False),
         AddedToken("word", single_word=True), AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
         AddedToken("<both>", lstrip=True, rstrip=True), AddedToken("caf\u00e9", normalized=True)]


def training_lines():
    text = tokenizer_goldens.TEXT.strip().split("\n") * 3
    return text + unicode_strings.MULTILINGUAL * 2 + unicode_strings.EMOJI + unicode_strings.DIGITS + unicode_strings.CONTRACTIONS + unicode_strings.WORDS


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(steps, normalizer=None, prefix=False, use_regex=False, size=700, **options):
    tok = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(training_lines(), trainer)
    tok.add_tokens(ADDED)
    return tok


def spaced(pre_tokenizer, normalizer, decoder, fuse_unk=True, byte_fallback=True, size=700, bos=True, bytes_missing=()):
    """SentencePiece-like BPE: characters, U+2581 for spaces, bytes for the rest."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    if normalizer is not None:
        tok.normalizer = normalizer
    if pre_tokenizer is not None:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoder
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256) if b not in bytes_missing]
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=first, limit_alphabet=150)
    tok.train_from_iterator([line for line in training_lines() for line in line.split("\n")], trainer)
    # The trainer has made special tokens of the bytes: of these only three are.
    tree = json.loads(tok.to_str())
    tree["added_tokens"] = []
    out = Tokenizer.from_str(json.dumps(tree))
    out.add_special_tokens(["<unk>", "<s>", "</s>"])
    out.add_tokens([AddedToken("<think>", normalized=False), AddedToken("caf\u00e9", normalized=True), AddedToken("<right>", rstrip=True)])
    if bos:
        out.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return out


def unigram(pre_tokenizer, normalizer, byte_fallback=False, decoder=None):
    tok = Tokenizer(models.Unigram())
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizer
    trainer = trainers.UnigramTrainer(vocab_size=1500, show_progress=False, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"])
    tok.train_from_iterator(training_lines(), trainer)
    if byte_fallback:
        vocab = [(p, s) for p, s in tok_vocab(tok)] + [(f"<0x{b:02X}>", -20.0) for b in range(256)]
        other = Tokenizer(models.Unigram(vocab, unk_id=2, byte_fallback=True))
        other.normalizer, other.pre_tokenizer = tok.normalizer, tok.pre_tokenizer
        tok = other
    tok.decoder = decoder or decoders.Metaspace()
    tok.add_special_tokens(["<pad>", "</s>"])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tok


def tok_vocab(tok):
    return json.loads(tok.to_str())["model"]["vocab"]


def word_piece():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(training_lines(), trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=special, limit_alphabet=120))
    tok.decoder = decoders.WordPiece()
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tok


def llama2_decoder():
    return decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def gemma_decoder():
    return decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])


def charsmap():
    """A small precompiled table: a double array (darts-clone) of a few texts, and what they become."""
    table = {"\t": " ", "\n": " ", "\r": " ", "e\u0301": "\u00e9", "\ufb01": "fi", "\uff21": "A", "\u00a0": " ", "\u200b": "", "\u2460": "1",
             "\u304b\u3099": "\u304c", "\u00bd": "1/2", "\u00a9": "(c)", "\u1160": "V"}
    texts, values = b"", {}
    for key, value in table.items():
        values[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    return struct.pack("<I", 4 * len(array := double_array(values))) + struct.pack(f"<{len(array)}I", *array) + texts


def double_array(values):
    """darts-clone's units: a label in 8 bits, bit 8: a value follows, bits 10..: the distance of the children; values have bit 31."""
    units, used = {0: 0}, {0}

    def place(node, prefix):
        labels = sorted({k[len(prefix)] for k in values if k.startswith(prefix) and len(k) > len(prefix)} | ({0} if prefix in values else set()))
        base = next(b for b in range(1, 1 << 20) if all((b ^ c) not in used for c in labels) and b not in used and (node ^ b) < (1 << 21))
        offset = node ^ base
        units[node] = units[node] & 0xFF | offset << 10 | ((1 << 8) if prefix in values else 0)
        for c in labels:
            used.add(base ^ c)
            units[base ^ c] = values[prefix] | 1 << 31 if c == 0 else c
        for c in labels:
            if c:
                place(base ^ c, prefix + bytes([c]))

    place(0, b"")
    return [units.get(i, 0) for i in range(max(units) + 256)]


FAMILIES = {
    "qwen3": lambda: byte_level([split(qwen_bpe.QWEN3_REGEX)], normalizers.NFC()),
    "qwen35": lambda: byte_level([split(qwen_bpe.QWEN35_REGEX)], normalizers.NFC()),
    "llama3": lambda: byte_level([split(LLAMA3)], ignore_merges=True),
    "gpt2": lambda: byte_level([], use_regex=True),
    "roberta": lambda: with_roberta(byte_level([], prefix=True, use_regex=True)),
    "cl100k": lambda: byte_level([split(CL100K, "removed", True)]),
    "o200k": lambda: byte_level([split(O200K)]),
    "tekken": lambda: byte_level([split(TEKKEN)], ignore_merges=True),
    "deepseek3": lambda: byte_level([split(p) for p in DEEPSEEK]),
    "kimi": lambda: byte_level([split(KIMI)]),
    "starcoder": lambda: byte_level([pre_tokenizers.Digits(individual_digits=True)], use_regex=True),
    "falcon": lambda: falcon(),
    "digits3": lambda: byte_level([split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K)]),
    "superbpe": lambda: byte_level([split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), split(LLAMA3)]),
    "llama2": lambda: spaced(None, normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), llama2_decoder()),
    "gemma": lambda: spaced(split(" ", "merged_with_previous"), normalizers.Replace(" ", "\u2581"), gemma_decoder()),
    "mistral": lambda: spaced(pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, llama2_decoder()),
    "few_bytes": lambda: spaced(pre_tokenizers.Metaspace(prepend_scheme="always", split=True), normalizers.NFKC(), decoders.Metaspace(),
                                fuse_unk=False, bytes_missing=range(0x90, 0x100)),
    "t5": lambda: unigram(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
                          normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])),
    "unigram_bytes": lambda: unigram(pre_tokenizers.Metaspace(), normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents()]), byte_fallback=True,
                                     decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])),
    "bert": word_piece,
    "words": lambda: spaced(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous")]),
                            normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip(right=False)]), decoders.Fuse(), byte_fallback=False, bos=False),
}


def with_roberta(tok):
    tok.post_processor = processors.Sequence([processors.ByteLevel(), processors.RobertaProcessing(("</s>", 701), ("<s>", 700))])
    return tok


def falcon():
    tok = byte_level([], size=700)
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")])
    return tok


class Strings:
    """Random and adversarial texts, the same for the same seed."""

    def __init__(self, seed, tokens):
        self.random = random.Random(seed)
        self.atoms = list("abcdefgstTSRELMDVhiWX012359 .,!?'\"-_/\\()[]{}<>|~\n\r\t\xa0\u3000\u2581\u0301\u0323\u200d\ufe0f\u00ad\u200b") + [
            "  ", "   ", "'s", "'LL", "'re", "\r\n", "\n\n", " \n", "\u00e9", "e\u0301", "caf\u00e9", "cafe\u0301", "\u017f", "\u212a", "\ufb01", "\u00bd", "\u2460", "\uff11", "\u0663", "\u4e2d", "\u6587",
            "\u304c", "\u304b\u3099", "\ud55c", "\u1100\u1161", "\u0e01\u0e33", "\u0915\u094d\u0937", "\u05e9\u05c1", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\u01c5", "\u00df", "\u0130",
            "word", " word ", "the", " the", "123", "1234567", "--", "...", "\u00a9\u0301", "\x00", "\x1c", "\x85", "\u2028", "<0x41>", "\u0378"] + list(tokens)
        self.words = [w for line in training_lines() for w in line.split()]

    def one(self):
        r = self.random
        kind = r.random()
        if kind < 0.5:
            return "".join(r.choice(self.atoms) for _ in range(r.randrange(1, 16)))
        if kind < 0.8:
            out = r.choice(["", " ", "\n"])
            for _ in range(r.randrange(1, 6)):
                out += r.choice(self.words) + (r.choice([" ", " ", " ", "  ", ",", "\n", ""]) if r.random() < 0.9 else r.choice(self.atoms))
            return out
        if kind < 0.97:
            return "".join(self.point() for _ in range(r.randrange(1, 12)))
        return r.choice(self.atoms) * r.randrange(2, 120)

    def point(self):
        r = self.random
        while True:
            c = r.randrange(r.choice([0x80, 0x250, 0x3100, 0x10000, 0x20000, 0x110000]))
            if not 0xD800 <= c < 0xE000:
                return chr(c)
