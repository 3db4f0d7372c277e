#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks a code object in one place at a time, to prove that a checker notices.

  mutate.py --objdump llvm-objdump-22 --out DIR [--kinds waitcnt,fence] object.hsaco

writes DIR/<n>.hsaco and DIR/manifest.json: [{file, kernel, address, kind, text}], in address order.

  waitcnt  an s_waitcnt becomes s_nop 0
  nop      an s_nop of more than one state becomes s_nop 0: at least one wait state is always left
  fence    a buffer_wbl2 or buffer_inv becomes two s_nop 0
  scope    a load or store loses its sc0 and sc1, an atomic its sc1 (its sc0 means "return")
  barrier  an s_barrier becomes s_nop 0
"""
import argparse
import json
import os
import re
import struct
import subprocess

from code_object import CodeObject

S_NOP_0 = 0xBF800000
SC0, SC1 = 1 << 16, 1 << 25  # dword 0 of GLOBAL instructions
KINDS = ("waitcnt", "nop", "fence", "scope", "barrier")


def instructions(objdump, path):
    """(kernel, address, text, words) of every instruction in front of the padding."""
    text = subprocess.run([objdump, "-d", path], check=True, capture_output=True, text=True).stdout
    kernel = "?"
    for line in text.splitlines():
        label = re.match(r"^[0-9a-f]+ <([^>]+)>:", line)
        if label:
            kernel = label.group(1)
            continue
        match = re.match(r"^\t(.*?)\s*// ([0-9A-F]+): ([0-9A-F ]+)", line)
        if match:
            words = [int(w, 16) for w in match.group(3).split()]
            yield kernel, int(match.group(2), 16), match.group(1), words


def mutations(kernel, address, text, words):
    """(kind, new words) for each way to break one instruction."""
    if text.startswith("s_waitcnt"):
        yield "waitcnt", [S_NOP_0]
    elif text.startswith("s_nop") and words[0] & 0xFFFF:
        yield "nop", [S_NOP_0]
    elif text.startswith("s_barrier"):
        yield "barrier", [S_NOP_0]
    elif text.startswith(("buffer_wbl2", "buffer_inv")):
        yield "fence", [S_NOP_0] * len(words)
    elif text.startswith("global_"):
        bits = SC1 if "_atomic_" in text else SC0 | SC1
        if words[0] & bits:
            yield "scope", [words[0] & ~bits] + words[1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--objdump", default="llvm-objdump-22")
    parser.add_argument("--out", required=True)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("object")
    args = parser.parse_args()
    kinds = set(args.kinds.split(","))
    if kinds - set(KINDS):
        parser.error(f"kinds are {', '.join(KINDS)}")
    with open(args.object, "rb") as file:
        data = file.read()
    code = CodeObject(data)
    text_section = code.section(".text")
    kernels = {s["name"]: s for s in code.symbols() if s["type"] == 2}
    os.makedirs(args.out, exist_ok=True)
    manifest = []
    for kernel, address, text, words in instructions(args.objdump, args.object):
        symbol = kernels.get(kernel)
        if symbol is None or address >= symbol["value"] + symbol["size"]:
            continue  # padding behind the kernel
        for kind, replacement in mutations(kernel, address, text, words):
            if kind not in kinds:
                continue
            at = text_section["offset"] + address - text_section["address"]
            old = struct.pack(f"<{len(words)}I", *words)
            assert data[at:at + len(old)] == old, f"{address:#x} of {args.object}"
            name = f"{len(manifest)}.hsaco"
            new = struct.pack(f"<{len(replacement)}I", *replacement)
            with open(os.path.join(args.out, name), "wb") as file:
                file.write(data[:at] + new + data[at + len(new):])
            manifest.append(dict(file=name, kernel=kernel, address=address, kind=kind, text=text))
    with open(os.path.join(args.out, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
    counts = {kind: sum(m["kind"] == kind for m in manifest) for kind in KINDS}
    print(f"{args.object}: " + ", ".join(f"{n} {k}" for k, n in counts.items()))


if __name__ == "__main__":
    main()
