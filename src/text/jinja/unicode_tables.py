#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints unicode_tables.inc: case and printability of code points as Python's str has them, which is what a chat template sees.

    python3 unicode_tables.py > unicode_tables.inc

A run of one-to-one case mappings is {first, last, step, delta}; what maps to several characters is listed.
"""
import unicodedata

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def lines(items, width=100):
    line = "   "
    for item in items:
        if len(line) + len(item) + 1 > width:
            print(line)
            line = "   "
        line += " " + item
    print(line)


def ranges(name, test):
    found = []
    for c in POINTS:
        if test(chr(c)):
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    print(f"constexpr Range {name}[] = {{")
    lines(f"{{0x{a:x}, 0x{b:x}}}," for a, b in found)
    print("};")


def mapping(name, to):
    runs, special = [], []
    for c in POINTS:
        mapped = to(chr(c))
        if mapped == chr(c):
            continue
        if len(mapped) > 1:
            special.append((c, mapped))
            continue
        delta = ord(mapped) - c
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            if first == last and c - last <= 2:
                runs[-1] = [first, c, c - last, delta]
                continue
            if c == last + step:
                runs[-1][1] = c
                continue
        runs.append([c, c, 1, delta])
    print(f"constexpr CaseRun {name}Runs[] = {{")
    lines(f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}," for a, b, s, d in runs)
    print("};")
    print(f"constexpr CaseSpecial {name}Specials[] = {{")
    if not special:
        special = [(0, "\0")]
    lines(f'{{0x{c:x}, {{{", ".join(f"0x{ord(x):x}" for x in text)}}}}},' for c, text in special)
    print("};")


print("// SPDX-License-Identifier: MIT")
print(f"// Made by unicode_tables.py (Unicode {unicodedata.unidata_version}); do not edit.")
ranges("kUnprintable", lambda c: not c.isprintable())
ranges("kUpper", str.isupper)
ranges("kLower", str.islower)
ranges("kAlpha", str.isalpha)
ranges("kDecimal", str.isdecimal)
mapping("kToUpper", str.upper)
mapping("kToLower", str.lower)
mapping("kToTitle", str.title)
