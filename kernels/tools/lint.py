#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the compiler gets wrong or the memory model needs, kept out of the kernels' source.

  lint.py <root of the source tree>      prints file:line: rule, exits 1 if any
"""
import pathlib
import re
import sys

# (pattern, files it may appear in, why)
RULES = [
    (r"__builtin_bit_cast|\bstd::bit_cast", {"common/types.h", "common/draw.h", "quant/bits.h"},
     "clang's bit cast of a vector element reads element 0: use BitCast, which takes a value"),
    (r"s_barrier|amdgcn_fence|__scoped_atomic|s_waitcnt|s_sleep|__atomic_|__sync_|__hip_atomic",
     {"common/sync.h", "common/jump.h"}, "ordering goes through common/sync.h: a raw s_barrier does not order LDS"),
    (r"workitem_id|workgroup_id|readfirstlane|readlane|update_dpp|ds_bpermute",
     {"common/wave.h", "common/jump.h", "gfx942/prims.h", "gfx950/prims.h"}, "lanes go through common/wave.h"),
    # An empty one is no instruction: it holds a value where it stands. One that clobbers memory would be a fence.
    (r"\b(__asm__|asm)\b(?!( volatile)?\(\"\" : \"\+[sv]\"\(\w+\)\);)", {"common/kernel.h", "common/jump.h", "gfx942/prims.h", "gfx950/prims.h"},
     "no wait states are inserted round inline assembly"),
    (r"__builtin_amdgcn_mfma", {"common/mfma.h", "gfx942/prims.h", "gfx950/prims.h"},
     "matrix instructions go through the wrappers, which know the operand rules"),
    # Where it does, the compiler says so, and its warning is an error.
    (r"#\s*pragma\s+unroll|unroll_count|unroll\(enable\)", {"ops/attention.h"},
     "partial unrolling fails on convergent code: unroll(full) or by hand"),
    (r"#\s*include\s*<(?!stdint\.h>)", set(), "freestanding: <stdint.h> only"),
    (r"\b(__gfx9\w+__|__AMDGCN__|gfx9\w+)\s*(&&|\|\||\))|#\s*if\w*.*__gfx", set(),
     "chip differences are facts or prims, not compares"),
    (r"\bdouble\b", {"common/draw.h", "quant/bits.h"},
     "no double arithmetic on the device, but where a sampled token must be the CPU's"),
]


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def body_after(text, at):
    """The statement or block that starts behind position `at`."""
    brace = text.find("{", at)
    depth = 0
    for i in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[at:i + 1]
    return text[at:]


def lint(name, text):
    """Yields (line, why) for one file; `name` is relative to kernels/."""
    text = strip_comments(text)
    for pattern, allowed, why in RULES:
        if name in allowed:
            continue
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start()) + 1, f"{match.group().strip()}: {why}"
    for match in re.finditer(r"#pragma clang loop unroll", text):
        if "Mfma" in body_after(text, match.end()):
            yield (text.count("\n", 0, match.start()) + 1,
                   "unrolling a loop with matrix instructions fails when its count is not constant")
    if re.search(r"^\s*KERNEL\(", text, re.M) and not re.match(r"entry/|gfx\w+/", name):
        yield 1, "kernels are declared in entry/ or in an ISA's folder"
    if name == "args.h":
        for match in re.finditer(r"^struct (\w+) \{", text, re.M):
            struct = match.group(1)
            if not re.search(rf"static_assert\(sizeof\({struct}[)<]", text) and struct not in ("Address", "Kernarg"):
                yield text.count("\n", 0, match.start()) + 1, f"{struct} has no size assertion"


def main():
    root = pathlib.Path(sys.argv[1]) / "kernels"
    files = sorted(p for p in root.rglob("*") if p.suffix in (".h", ".cc"))
    bad = 0
    for path in files:
        name = path.relative_to(root).as_posix()
        for line, why in lint(name, path.read_text(encoding="utf-8")):
            print(f"kernels/{name}:{line}: {why}")
            bad += 1
    print(f"{len(files)} files, {bad} findings")
    sys.exit(1 if bad or not files else 0)


if __name__ == "__main__":
    main()
