#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares tokens and texts of libmainarch.so with the `tokenizers` package, string by string.

    venv/bin/python tests/golden/compare_tokenizers.py build/src/api/libmainarch.so --count 1000000
    venv/bin/python tests/golden/compare_tokenizers.py build/src/api/libmainarch.so --count 100000 --files DIR ...

Of each family of tokenizer_families.py, or of each directory with a tokenizer.json: random and adversarial texts, their tokens with and
without those around a text, and the text of these tokens, of random tokens, whole and piece by piece. Ends with 1 on any difference.
"""
import argparse
import ctypes
import pathlib
import random
import sys
import tempfile
import time

import tokenizers

import tokenizer_families


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.error = ctypes.create_string_buffer(4096)
        self.tokens = (ctypes.c_uint32 * (1 << 16))()
        self.text = ctypes.create_string_buffer(1 << 18)
        self.count = ctypes.c_size_t()

    def open(self, directory):
        handle = ctypes.c_void_p()
        status = self.lib.mainarch_tokenizer_open(str(directory).encode(), ctypes.byref(handle), self.error)
        if status:
            raise RuntimeError(self.error.raw[8:].replace(b"\0", b""))
        return handle

    def encode(self, handle, text, flags):
        data = text.encode()
        status = self.lib.mainarch_tokenizer_encode(handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint64(flags), self.tokens,
                                                    ctypes.c_size_t(1 << 16), ctypes.byref(self.count), self.error)
        return self.tokens[:self.count.value] if status == 0 else status

    def decode(self, handle, ids, skip):
        given = (ctypes.c_uint32 * len(ids))(*ids)
        status = self.lib.mainarch_tokenizer_decode(handle, given, ctypes.c_size_t(len(ids)), ctypes.c_uint64(int(skip)), self.text,
                                                    ctypes.c_size_t(1 << 18), ctypes.byref(self.count), self.error)
        assert status == 0
        return self.text.raw[:self.count.value].decode()

    def stream(self, handle, ids, skip):
        decoder, out = ctypes.c_void_p(), b""
        assert self.lib.mainarch_decoder_create(handle, ctypes.c_uint64(int(skip)), ctypes.byref(decoder), self.error) == 0
        for id_ in ids:
            one = (ctypes.c_uint32 * 1)(id_)
            assert self.lib.mainarch_decoder_push(decoder, one, ctypes.c_size_t(1), self.text, ctypes.c_size_t(1 << 18), ctypes.byref(self.count), self.error) == 0
            out += self.text.raw[:self.count.value]
        assert self.lib.mainarch_decoder_finish(decoder, self.text, ctypes.c_size_t(1 << 18), ctypes.byref(self.count), self.error) == 0
        out += self.text.raw[:self.count.value]
        self.lib.mainarch_decoder_destroy(decoder)
        return out.decode()


def compare(library, name, directory, count, seed, show=5):
    tok = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tok.no_truncation()
    tok.no_padding()
    handle, start = library.open(directory), time.time()
    added = [t.content for t in tok.get_added_tokens_decoder().values()][:40]
    strings, r = tokenizer_families.Strings(seed, added), random.Random(seed + 1)
    vocab, wrong, tokens = tok.get_vocab_size(), 0, 0

    def check(what, given, ours, theirs):
        nonlocal wrong
        if ours != theirs:
            wrong += 1
            if wrong <= show:
                print(f"{name}: {what} of {given!r}:\n  mainarch   {ours!r}\n  tokenizers {theirs!r}")

    for begin in range(0, count, 2000):
        texts = [strings.one() for _ in range(min(2000, count - begin))]
        plain = tok.encode_batch_fast(texts, add_special_tokens=False)
        around = tok.encode_batch_fast(texts[:100], add_special_tokens=True)
        for i, (text, encoding) in enumerate(zip(texts, plain)):
            ids = encoding.ids
            tokens += len(ids)
            check("tokens", text, library.encode(handle, text, 0), ids)
            if i < 100:
                check("tokens around", text, library.encode(handle, text, 4), around[i].ids)
            if i < 200:
                check("text", ids, library.decode(handle, ids, False), tok.decode(ids, skip_special_tokens=False))
            if i < 50:
                ids = [r.randrange(vocab) for _ in range(r.randrange(1, 12))]
                skip = i % 2 == 0
                whole = library.decode(handle, ids, skip)
                theirs = tok.decode(ids, skip_special_tokens=skip)
                if not ("\ufffd" in theirs and name not in ("qwen3", "gpt2")):  # see text_decoder.h: runs of bytes that are no UTF-8
                    check("text", ids, whole, theirs)
                check("pieces", ids, library.stream(handle, ids, skip), whole)
    library.lib.mainarch_tokenizer_destroy(handle)
    print(f"{name}: {count} texts, {tokens} tokens, {wrong} differences, {time.time() - start:.0f} s", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", help="names with commas between them; else all")
    parser.add_argument("--files", nargs="*", default=[], type=pathlib.Path)
    options = parser.parse_args()
    library, wrong = Library(options.library), 0
    if options.files:
        return sum(compare(library, d.name, d, options.count, options.seed) for d in options.files)
    for name in options.families.split(",") if options.families else tokenizer_families.FAMILIES:
        with tempfile.TemporaryDirectory() as where:
            tokenizer_families.FAMILIES[name]().save(where + "/tokenizer.json")
            wrong += compare(library, name, pathlib.Path(where), options.count, options.seed)
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
