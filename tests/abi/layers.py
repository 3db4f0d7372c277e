#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A file includes its own folder and lower floors only (src/README.md), without cycles."""
import pathlib
import re
import sys

FLOORS = {
    "base": 0, "pch": 0,
    "file": 1, "text": 1, "quant": 1, "isa": 1,
    "kfd": 2,
    "gpu": 3, "sim": 3,
    "backend": 4,
    "model": 5,
    "reference": 6,
    "decode": 7,
    "api": 8, "cli": 8,
}
# Folders inside one floor that must not know each other.
STRANGERS = {("backend/cpu", "backend/amdgpu"), ("backend/amdgpu", "backend/cpu")}
# The virtual node is a part of its own (kfd/sim_part.h): of what is not in it only the command, which
# counts and explains what the interpreter does, looks inside.
INSIDE_SIM = {"sim", "cli"}
# The only host headers of kernels/ that src/ may see.
KERNEL_HEADERS = re.compile(r"kernels/(((decoder|tall|latent|long|near|heads|experts|choice|litmus|resident)_)?args\.h|common/(draw|tree)\.h|quant/[\w.]+|gfx\w+/(facts|spec)\.h)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def check(path, root):
    own = path.relative_to(root / "src")
    folder = own.parts[0]
    floor = FLOORS.get(folder)
    if floor is None:
        yield f"{own}: folder {folder} has no floor"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        where = f"{own}:{number}: includes {target}"
        if target == "mainarch.h":
            if folder not in ("api", "cli"):
                yield f"{where}: only api/ and cli/ see the public header"
        elif target.startswith("kernels/"):
            if not KERNEL_HEADERS.match(target):
                yield f"{where}: not a shared kernel header"
        elif "/" in target:
            other = target.split("/")[0]
            if other not in FLOORS:
                if not (root / "src" / target).exists() and other in ("absl",):
                    continue
                yield f"{where}: unknown folder"
            elif other == "sim" and folder not in INSIDE_SIM:
                yield f"{where}: the library reaches the virtual node by kfd/sim_part.h only"
            elif other != folder and FLOORS[other] >= floor:
                yield f"{where}: floor {FLOORS[other]} is not below {floor}"
            elif any(str(own).startswith(a + "/") and target.startswith(b + "/")
                     for a, b in STRANGERS):
                yield f"{where}: these folders do not know each other"
        elif not (path.parent / target).exists():
            yield f"{where}: include by full path from src/"


def main():
    root = pathlib.Path(sys.argv[1])
    files = [p for p in (root / "src").rglob("*") if p.suffix in (".h", ".cc", ".inc")]
    bad = [line for path in sorted(files) for line in check(path, root)]
    for line in bad:
        print(line)
    print(f"{len(files)} files, {len(bad)} wrong includes")
    sys.exit(1 if bad or not files else 0)


if __name__ == "__main__":
    main()
