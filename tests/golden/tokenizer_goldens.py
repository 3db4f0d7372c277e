"""Two tiny vocabularies, hard strings with their ids, decodings, and rendered conversations."""
import json
import random

from tokenizers import Tokenizer

import qwen_bpe
import unicode_strings

TEXT = """
A tokenizer cuts text into pieces that a model knows. First it normalises the letters, then a pattern splits the words, and at last the
merges join bytes into longer and longer pieces until no rule is left. The order of the rules matters more than anything else.
We're testing it with words that people use: the house, the river, the mountain, the morning and the evening; a letter, a number, a sign.
She said, "It's late, isn't it?" He'd have answered, but they'll never know what he'd have said. I'm sure you've seen that before.
def main(args):\n    for i in range(10):\n        print(i, args[i])\n    return {"key": "value", "list": [1, 2, 3]}\n
The user asks a question and the assistant answers it. What is the answer? The answer is 42. Thank you for the answer!
In the year 1999 there were 365 days, 12 months and 52 weeks; in 2024 there were 366. Temperatures rose by 1.5 degrees.
"""
THINK = [("<think>", False), ("</think>", False)]
# B has tokens that contain each other, that stand inside words, and that are not ASCII: the longest at the leftmost place wins,
# on the text before normalisation.
ADDED_B = qwen_bpe.CHAT_TOKENS + [
    ("<tool_call>", False), ("</tool_call>", False), ("<|a|>", True), ("<|a|><|b|>", True), ("<|b|>", False), ("ing!", False), ("<|é|>", True),
]
VOCABULARIES = {
    "a": dict(vocab_size=512, regex=qwen_bpe.QWEN3_REGEX, added=qwen_bpe.CHAT_TOKENS, merges="strings"),
    "b": dict(vocab_size=1000, regex=qwen_bpe.QWEN35_REGEX, added=ADDED_B, merges="pairs"),
}
EXTRA_B = [
    "<|a|><|b|>", "<|a|> <|b|>", "<|a|><|a|><|b|>", "<|b|><|a|>", "<|a|><|b", "testing!", "ing!ing!", "going! on", "ingingg!", "<|é|>", "<|e\u0301|>", "x<|é|>e\u0301",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<tool_call></tool_call>", "<<tool_call>>",
]


def strings():
    added = [text for text, _ in qwen_bpe.CHAT_TOKENS]
    return list(dict.fromkeys(unicode_strings.all_strings(added[1:]) + EXTRA_B))


def build(directory):
    """Train and store the vocabularies. The multilingual snippets count double, so that their bytes get merges."""
    lines = TEXT.strip().split("\n") * 3 + unicode_strings.MULTILINGUAL * 2 + unicode_strings.EMOJI
    out = {}
    for name, spec in VOCABULARIES.items():
        where = directory / "tokenizer" / name
        where.mkdir(parents=True, exist_ok=True)
        tok = qwen_bpe.train(lines, spec["vocab_size"], spec["regex"], spec["added"])
        out[name] = qwen_bpe.save(tok, where / "tokenizer.json", spec["merges"])
        first = spec["vocab_size"] - len(spec["added"])
        qwen_bpe.write_json(where / "tokenizer_config.json", qwen_bpe.tokenizer_config(512, spec["added"], first))
    return out


def encode_cases(tok, texts):
    out = []
    for text in texts:
        ids = tok.encode(text, add_special_tokens=False).ids
        out.append([ids, tok.decode(ids, skip_special_tokens=False), tok.decode(ids, skip_special_tokens=True)])
    return out


def decode_cases(tok, count=60):
    """Any ids in any order: broken UTF-8 becomes U+FFFD, as Rust's from_utf8_lossy does."""
    r = random.Random(13)
    size, out = tok.get_vocab_size(), []
    for i in range(count):
        high = 256 if i % 2 else size  # the first ids are the single bytes
        ids = [r.randrange(high) for _ in range(r.randrange(1, 14))]
        if i % 5 == 0:
            ids.insert(r.randrange(len(ids) + 1), size - 1 - r.randrange(5))
        out.append([ids, tok.decode(ids, skip_special_tokens=False), tok.decode(ids, skip_special_tokens=True)])
    return out


SYSTEM = {"role": "system", "content": "You are helpful."}
CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [SYSTEM, {"role": "user", "content": "What is written in Ruth 1:16?"}],
    [SYSTEM, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Who are you?"}],
    [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n2"}, {"role": "user", "content": "And 2+2?"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\n\n</think>\n\nb"}, {"role": "user", "content": "c"},
     {"role": "assistant", "content": "<think>\nx\ny\n</think>\n\nd\n\ne"}, {"role": "user", "content": "f"}],
    [{"role": "user", "content": ""}],
    [{"role": "user", "content": "  spaces and\nlines\n\n"}],
    [SYSTEM, {"role": "user", "content": "नमस्ते 😀 e\u0301"}],
    [{"role": "user", "content": "an <|im_end|> in the text"}],
]


def without_thinking(content):
    return content.rpartition("</think>")[2].lstrip("\n") if "</think>" in content else content


def render(messages, thinking, style, generation_prompt):
    """ChatML by the rules of the released templates. All assistant turns here are earlier turns: they lose their think block."""
    out = ""
    for m in messages:
        content = without_thinking(m["content"]) if m["role"] == "assistant" and style != "plain" else m["content"]
        out += f"<|im_start|>{m['role']}\n{content}<|im_end|>\n"
    if not generation_prompt:
        return out
    opening = {("qwen3", True): "", ("qwen3.5", True): "<think>\n"}.get((style, thinking), "<think>\n\n</think>\n\n")
    return out + "<|im_start|>assistant\n" + ("" if style == "plain" else opening)


def chat_cases(tokenizers):
    out = []
    for messages in CONVERSATIONS:
        for style, thinking, prompt in [("qwen3", True, True), ("qwen3", False, True), ("qwen3.5", True, True), ("qwen3.5", False, True),
                                        ("plain", False, True), ("qwen3", True, False)]:
            text = render(messages, thinking, style, prompt)
            out.append({
                "messages": messages, "style": style, "thinking": thinking, "add_generation_prompt": prompt, "text": text,
                "ids": {name: tok.encode(text, add_special_tokens=False).ids for name, tok in tokenizers.items()},
            })
    return out


def lines(items):
    """A JSON array with one item a line; ASCII only, so that no editor changes a byte."""
    return "[\n" + ",\n".join(json.dumps(i, ensure_ascii=True, separators=(",", ":")) for i in items) + "\n]"


def write(data, trained):
    """Returns the manifest entry."""
    tokenizers, files = build(data), {n: f"tokenizer/{n}/tokenizer.json" for n in VOCABULARIES}
    if (trained / "tokenizer.json").exists():
        tokenizers["trained"] = Tokenizer.from_file(str(trained / "tokenizer.json"))
        files["trained"] = "../trained/tokenizer.json"
    texts = strings()
    parts = [f'"strings": {lines(texts)}']
    for name, tok in tokenizers.items():
        parts += [f'"encode.{name}": {lines(encode_cases(tok, texts))}', f'"decode.{name}": {lines(decode_cases(tok))}']
    (data / "tokenizer" / "cases.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="ascii")
    (data / "tokenizer" / "chat.json").write_text(lines(chat_cases(tokenizers)) + "\n", encoding="ascii")
    return {"files": files, "strings": len(texts), "vocabulary": {n: t.get_vocab_size() for n, t in tokenizers.items()}}
