#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes unicode_ranges.inc and unicode_forms.inc: what the `tokenizers` package knows of code points.

    pip install tokenizers==0.23.2; python3 unicode_tables.py src/text      # three minutes

The package is asked, code point by code point, because its ids are what a tokenizer must reproduce. It holds five Unicode versions at
once: Oniguruma's (patterns), Rust's (lower case, digits, white space), two older ones (normal forms and accents; punctuation), and a newer one (graphemes). A
distribution's Unicode library may be years older or newer than any of them, so none is used.
"""
import pathlib
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So",
              "Zs", "Zl", "Zp", "Cc", "Cf", "Co"]  # the others are Cn; no text has Cs
SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul", "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Thai", "Devanagari"]


def matching(pattern):
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    found = set()
    for i in range(0, len(POINTS), 4096):
        for piece, _ in split.pre_tokenize_str("".join(map(chr, POINTS[i:i + 4096]))):
            found.update(map(ord, piece))
    return found


def where(test):
    return {c for c in POINTS if test(chr(c))}


def pieces(pre_tokenizer, text):
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def composing(nfc):
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and trailing consonants
    for c in POINTS:
        if nfc(chr(c)) != chr(c):
            found.add(c)
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and parts[0][0] != "<" and nfc("".join(chr(int(p, 16)) for p in parts)) == chr(c):
            found.add(int(parts[1], 16))
    return found


def reordered(nfc):
    """Marks that the package sorts: those it moves past a mark of class 1, and those a mark of class 230 moves past."""
    return {c for c in matching(r"\p{M}") if nfc(chr(c) + "\u0334")[0] == "\u0334" and c != 0x334
            or nfc("\u0301" + chr(c))[-1] == "\u0301" and c != 0x301}


def charsmap_of_a():
    """A precompiled table (a double array, then texts) that has "b" for "a"."""
    offset = 1 << 10  # of a unit's children, from bit 10 on
    units = [0] * 512
    units[0] = offset  # the root's children are at 1 ^ label
    units[1 ^ ord("a")] = ord("a") | 1 << 8 | offset  # whose child of label 0, 1 further, is its value
    units[1 ^ ord("a") ^ 1] = 1 << 31
    return struct.pack("<513I", 4 * len(units), *units) + b"b\0"


def ranges_of(points):
    ranges = []
    for c in sorted(points):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def show(out, kind, name, items):
    out.append(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for item in items:
        item = " " + item + ","
        if len(line) + len(item) > 100:
            out.append(line)
            line = "   "
        line += item
    out.append(line + "\n};")


def show_set(out, name, points):
    show(out, "Range", name, [f"{{0x{first:x}, 0x{last:x}}}" for first, last in ranges_of(points)])


def show_mapping(out, name, mapping):
    """Code point -> one code point, as runs of equal distance and step."""
    runs = []
    for c, to in sorted(mapping.items()):
        if runs:
            first, last, step, delta = runs[-1]
            if to - c == delta and (c - last == step or first == last and c - last in (1, 2)):
                runs[-1] = (first, c, c - last, delta)
                continue
        runs.append((c, c, 1, to - c))
    show(out, "Mapping", name, [f"{{0x{a:x}, 0x{b:x}, {step}, {delta}}}" for a, b, step, delta in runs])


def categories():
    category = {}
    for i, name in enumerate(CATEGORIES):
        for c in matching(rf"\p{{{name}}}"):
            assert c not in category
            category[c] = i
    runs = []
    for c, i in sorted(category.items()):
        if runs and runs[-1][2] == i and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c, i])
    return [f"{{0x{a:x}, 0x{b:x}, k{CATEGORIES[i]}}}" for a, b, i in runs]


def class_tables():
    out = ["// SPDX-License-Identifier: MIT",
           f"// Made by unicode_tables.py from tokenizers {tokenizers.__version__}; do not edit.", ""]
    nfc = normalizers.NFC().normalize_str
    out.append("// Oniguruma (Unicode 16.0): the patterns of splits.")
    show(out, "CategoryRange", "kCategories", categories())
    space, word = matching(r"\s"), matching(r"\w")
    show_set(out, "kSpaces", space)
    show_set(out, "kWords", word)
    show_set(out, "kAlphabetic", matching(r"\p{Alphabetic}"))
    for script in SCRIPTS:
        show_set(out, "kScript" + script, matching(rf"\p{{{script}}}"))
    out.append("// Rust: digits, white space, words; but for a few code points the same.")
    split = pre_tokenizers.Whitespace()
    show_set(out, "kNotWordsInRust", word - where(lambda c: pieces(split, c + "a") == [c + "a"]))
    show_set(out, "kWordsInRustOnly", where(lambda c: pieces(split, c + "a") == [c + "a"]) - word)
    assert where(lambda c: not pieces(pre_tokenizers.WhitespaceSplit(), c)) == space
    digits = pre_tokenizers.Digits(True)
    show_set(out, "kNumericInRust", where(lambda c: len(pieces(digits, c + c)) == 2))
    out.append("// The crate unicode_categories (Unicode 8).")
    punctuation = pre_tokenizers.Punctuation()
    show_set(out, "kPunctuation", where(lambda c: len(pieces(punctuation, c + c)) == 2))
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False).normalize_str
    show_set(out, "kCleaned", where(lambda c: clean(c) == ""))
    bare = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False).normalize_str
    nfd = normalizers.NFD().normalize_str
    show_set(out, "kNonspacing", where(lambda c: nfd(c) == c and bare(c) == ""))
    out.append("// The crate unicode-normalization (Unicode 9).")
    show_set(out, "kAccents", where(lambda c: normalizers.StripAccents().normalize_str(c) == ""))
    show_set(out, "kComposingPoints", composing(nfc))
    show_set(out, "kReorderedMarks", reordered(nfc))
    out.append("// How graphemes are cut (Precompiled).")
    grapheme = pre_tokenizers.Split(Regex(r"\X"), behavior="isolated")
    pictures = matching(r"\p{Extended_Pictographic}")
    show_set(out, "kPictures", pictures)
    # Newer than the patterns' tables, so Precompiled itself is asked: of a grapheme it takes what begins it. Of what only these join, no
    # table here tells vowel signs that take room from others; Unicode 17's data files do.
    begins = normalizers.Precompiled(charsmap_of_a())
    joining, patterns = where(lambda c: begins.normalize_str("a" + c) == "b"), where(lambda c: len(pieces(grapheme, "a" + c)) == 1)
    newer = joining - patterns
    show_set(out, "kGraphemeExtend", matching(r"\p{Grapheme_Extend}") | set(range(0x1F3FB, 0x1F400)) | {0x200D} | newer - {0x11B61, 0x11B65, 0x11B67})
    show_set(out, "kGraphemeJoining", joining)
    show_set(out, "kGraphemePrepended", where(lambda c: len(pieces(grapheme, c + "a")) == 1))
    show_set(out, "kGraphemeControls", where(lambda c: len(pieces(grapheme, c + "\u0301")) == 2))
    return out


def form_tables():
    out = ["// SPDX-License-Identifier: MIT",
           f"// Made by unicode_tables.py from tokenizers {tokenizers.__version__}; do not edit.", ""]
    hangul = range(0xAC00, 0xD7A4)  # by arithmetic
    nfc, nfd, nfkd = (f().normalize_str for f in (normalizers.NFC, normalizers.NFD, normalizers.NFKD))
    pool, places = [], {}

    def place(text):
        points = tuple(map(ord, text))
        if points not in places:
            places[points] = len(pool)
            pool.extend(points)
        return f"{places[points]}, {len(points)}"

    def forms(form, skip):
        return [f"{{0x{c:x}, {place(form(chr(c)))}}}" for c in POINTS if c not in hangul and form(chr(c)) != chr(c) and not skip(chr(c))]

    canonical = forms(nfd, lambda c: False)
    compatible = forms(nfkd, lambda c: nfkd(c) == nfd(c))
    out.append("// Full decompositions: a code point, then where in kParts, and how many.")
    show(out, "Decomposition", "kCanonical", canonical)
    out.append("// Of those whose NFKD is not their NFD.")
    show(out, "Decomposition", "kCompatible", compatible)
    show(out, "uint32_t", "kParts", [f"0x{c:x}" for c in pool])
    pairs = []
    for c in POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and parts[0][0] != "<" and c not in hangul:
            a, b = (int(p, 16) for p in parts)
            if nfc(chr(a) + chr(b)) == chr(c):
                pairs.append((a, b, c))
    out.append("// What two code points compose to, in the order of the pairs.")
    show(out, "Composition", "kCompositions", [f"{{0x{a:x}, 0x{b:x}, 0x{c:x}}}" for a, b, c in sorted(pairs)])
    marks = sorted(reordered(nfc))
    runs = []
    for c in marks:
        ccc = unicodedata.combining(chr(c))
        if ccc == 0:  # one that decomposes to marks, and is none itself
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == ccc:
            runs[-1][1] = c
        else:
            runs.append([c, c, ccc])
    out.append("// Canonical combining classes other than 0.")
    show(out, "ClassRange", "kCombiningClasses", [f"{{0x{a:x}, 0x{b:x}, {ccc}}}" for a, b, ccc in runs])
    lower = {c: normalizers.Lowercase().normalize_str(chr(c)) for c in POINTS}
    longer = {c: text for c, text in lower.items() if len(text) != 1}
    assert longer == {0x130: "i\u0307"}, longer
    out.append("// Rust's lower case; U+0130, which becomes two, is not here.")
    show_mapping(out, "kLowerCase", {c: ord(text) for c, text in lower.items() if len(text) == 1 and ord(text) != c})
    return out


if __name__ == "__main__":
    where_to = pathlib.Path(sys.argv[1])
    (where_to / "unicode_ranges.inc").write_text("\n".join(class_tables()) + "\n")
    (where_to / "unicode_forms.inc").write_text("\n".join(form_tables()) + "\n")
