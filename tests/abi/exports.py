#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library exports symbols.txt, which is what the map, the header and the Debian package say, and
nothing else. tests/abi/update renews the lists."""
import pathlib
import re
import subprocess
import sys


def exported(library):
    """name and version of each dynamic symbol that is defined."""
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True,
                         capture_output=True).stdout
    symbols = set()
    for line in out.splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.partition("@@")
        if kind == "A" and not version:
            continue  # the version nodes themselves
        symbols.add(f"{name} {version}")
    return symbols


def in_map(path):
    text = re.sub(r"#.*", "", path.read_text())
    symbols = set()
    for node, body in re.findall(r"(MAINARCH_[\d.]+)\s*\{(.*?)\}", text, re.S):
        names = re.search(r"global:(.*?)(local:|$)", body, re.S).group(1)
        symbols |= {f"{name} {node}" for name in re.findall(r"\w+", names)}
    if "local:" not in text or not re.search(r"local:\s*\*;", text):
        sys.exit("the map has no \"local: *\"")
    return symbols


def in_header(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    declared = re.findall(r"MAINARCH_API[^;]*?\b(mainarch_\w+)\(", text)
    if len(declared) != len(set(declared)):
        sys.exit("a function is declared twice")
    return set(declared)


def in_debian(path):
    """Names of debian/*.symbols, without the version nodes themselves."""
    found = set(re.findall(r"^ (\w+)@(\S+) \S+$", path.read_text(), re.M))
    return {f"{name} {node}" for name, node in found if name.startswith("mainarch_")}


def report(what, left, right):
    for name in sorted(left - right):
        print(f"{what}: {name}")
    return len(left - right)


def main():
    library, root = sys.argv[1], pathlib.Path(sys.argv[2])
    listed = set((root / "tests/abi/symbols.txt").read_text().split("\n")) - {""}
    actual = exported(library)
    mapped = in_map(root / "src/mainarch.map")
    debian = in_debian(root / "debian/libmainarch0.symbols")
    names = {line.split()[0] for line in listed}
    header = in_header(root / "include/mainarch.h")
    bad = report("exported, but not in symbols.txt", actual, listed)
    bad += report("in symbols.txt, but not exported", listed, actual)
    bad += report("in the map, but not in symbols.txt", mapped, listed)
    bad += report("in symbols.txt, but not in the map", listed, mapped)
    bad += report("in debian/libmainarch0.symbols, but not in symbols.txt", debian, listed)
    bad += report("in symbols.txt, but not in debian/libmainarch0.symbols", listed, debian)
    bad += report("in the header, but not in symbols.txt", header, names)
    bad += report("in symbols.txt, but not in the header", names, header)
    print(f"{len(actual)} symbols, {bad} differences")
    sys.exit(1 if bad or not actual else 0)


if __name__ == "__main__":
    main()
