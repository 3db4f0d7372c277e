#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints unicode_ranges.inc: which code points are letters, marks, numbers and white space for the `tokenizers` package.

    pip install tokenizers==0.23.3; python3 unicode_ranges.py > unicode_ranges.inc

The package is asked, code point by code point, because its ids are what a tokenizer must reproduce; a distribution's Unicode library
may be years older or newer. kComposingPoints is NFC_Quick_Check != Yes: code points that NFC changes or joins to the one before.
kReorderedMarks have a combining class in the Unicode (9) of the package's NFC; marks younger than that it leaves where they are.
"""
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    found = set()
    for i in range(0, len(POINTS), 4096):
        for piece, _ in split.pre_tokenize_str("".join(map(chr, POINTS[i:i + 4096]))):
            found.update(map(ord, piece))
    return found


def composing():
    nfc = normalizers.NFC()
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and trailing consonants
    for c in POINTS:
        if nfc.normalize_str(chr(c)) != chr(c):
            found.add(c)
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and parts[0][0] != "<" and nfc.normalize_str("".join(chr(int(p, 16)) for p in parts)) == chr(c):
            found.add(int(parts[1], 16))
    return found


def reordered():
    """Marks that the package sorts: those it moves past a mark of class 1, and those a mark of class 230 moves past."""
    nfc = normalizers.NFC()
    return {c for c in matching(r"\p{M}") if nfc.normalize_str(chr(c) + "\u0334")[0] == "\u0334" and c != 0x334
            or nfc.normalize_str("\u0301" + chr(c))[-1] == "\u0301" and c != 0x301}


def show(name, points):
    ordered, ranges = sorted(points), []
    for c in ordered:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for first, last in ranges:
        item = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")


print("// SPDX-License-Identifier: MIT")
print(f"// Made by unicode_ranges.py from tokenizers {tokenizers.__version__} (Unicode 16.0); do not edit.")
show("kLetters", matching(r"\p{L}"))
show("kMarks", matching(r"\p{M}"))
show("kNumbers", matching(r"\p{N}"))
show("kSpaces", matching(r"\s"))
show("kComposingPoints", composing())
show("kReorderedMarks", reordered())
