#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every constant, struct field and prototype of the public header, against layout.txt.

Within a soname a line of layout.txt never changes or goes: lines are added, fields at the end of a
struct that has a struct_size: tests/abi/update. `layout.py <root> <cc>... --print` only prints.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

PROBE = """#include <mainarch.h>
#include <stdio.h>
#define FIELD(type, field) printf(#type "." #field " at %zu, %zu bytes\\n", \\
    offsetof(type, field), sizeof(((type *)0)->field))
int main(void) {
"""


def probe(header):
    """A C program that prints the layout."""
    lines = []
    for name in re.findall(r"^\s*(MAINARCH_\w+) = ", header, re.M):
        lines.append(f'printf("{name} = %lld\\n", (long long){name});')
    for name in re.findall(r"#define (MAINARCH_\w+) \(?(?:UINT|-?\d)", header):
        if not name.startswith("MAINARCH_VERSION_"):
            lines.append(f'printf("{name} = %llu\\n", (unsigned long long){name});')
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", header, re.S):
        for field in re.findall(r"(\w+)(?:\[\d+\])?;", body):
            lines.append(f"FIELD({name}, {field});")
    return PROBE + "\n".join(lines) + "\nreturn 0; }\n"


def prototypes(header):
    header = re.sub(r"^ *#.*$", "", header, flags=re.M)
    found = re.findall(r"MAINARCH_API (?:MAINARCH_CHECK )?([^;]*?\bmainarch_\w+\([^;]*\));", header)
    found += re.findall(r"typedef (\w+ \(\*mainarch_\w+\)\([^;]*\));", header)
    return sorted(re.sub(r"\s+", " ", text).strip() for text in found)


def main():
    only_print = "--print" in sys.argv
    root, *compiler = [a for a in sys.argv[1:] if a != "--print"]
    root = pathlib.Path(root)
    header = re.sub(r"/\*.*?\*/", "", (root / "include/mainarch.h").read_text(), flags=re.S)
    with tempfile.TemporaryDirectory() as scratch:
        source, program = pathlib.Path(scratch, "probe.c"), pathlib.Path(scratch, "probe")
        source.write_text(probe(header))
        subprocess.run([*compiler, "-I", root / "include", source, "-o", program], check=True)
        layout = subprocess.run([program], check=True, text=True, capture_output=True).stdout
    now = layout.splitlines() + prototypes(header)
    if only_print:
        print("\n".join(now))
        return
    before = (root / "tests/abi/layout.txt").read_text().splitlines()
    gone, new = [x for x in before if x not in now], [x for x in now if x not in before]
    for line in gone:
        print(f"changed or gone, which breaks programs: {line}")
    for line in new:
        print(f"new, to be put on record by tests/abi/update: {line}")
    print(f"{len(now)} lines, {len(gone)} gone, {len(new)} new")
    sys.exit(1 if gone or new or len(now) < 100 else 0)


if __name__ == "__main__":
    main()
