#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails the build when a code object breaks a rule of kernels/README.md; otherwise writes what the
kernel list needs as JSON.

  check.py --isa gfx950 --objdump llvm-objdump-22 --out rows.json rows.hsaco
"""
import argparse
import json
import re
import struct
import subprocess
import sys

from code_object import EM_AMDGPU, SHT_REL, SHT_RELA, Bad, CodeObject

ABI_VERSION_6 = 4

# (pattern over one disassembled instruction, ISAs or None for all, why)
FORBIDDEN = [
    (r"^flat_(load|store|atomic)", None, "a FLAT access: an address space got lost"),
    (r"^scratch_", None, "scratch memory"),
    (r"^(global|buffer|flat|ds)_\w*(atomic_)?(pk_)?add_(rtn_)?(f32|f64|f16|bf16)\b", None,
     "a floating-point atomic: sums would depend on arrival order"),
    (r"^s_swappc|^s_call", None, "a call: ops are inlined"),
    (r"^s_setreg", None, "a change of MODE or another hardware register"),
    (r"^v_pk_fma_f32\b.*\bop_sel:\[0,1,0\]", {"gfx950"},
     "the silicon erratum of v_pk_fma_f32 with op_sel:[0,1,0], which drops the low lane's sum"),
    (r"^(global_load_lds_dwordx[23]\b|buffer_load_dwordx[23]\b.*\blds\b)", None,
     "LDS-DMA of two or three dwords a lane"),
    (r"^(<unknown>|\.long\b)", None, "not an instruction of this ISA"),
]
# What none of these patterns knows, nearly all, is not looked at again.
ANY_FORBIDDEN = re.compile("|".join(pattern for pattern, _, _ in FORBIDDEN))
LABEL = re.compile(r"^[0-9a-f]+ <([^>]+)>:")
# In which the resident kernel alone goes from one kernel's code to another's (common/jump.h).
JUMPING = {"resident", "resident_return", "resident_large", "resident_large_return"}
SCALED_MFMA = re.compile(r"^v_mfma_(scale_|ld_scale)")


def instructions(objdump, path):
    """(kernel, address, text) of every instruction."""
    text = subprocess.run([objdump, "-d", path], check=True, capture_output=True, text=True).stdout
    kernel = "?"
    for line in text.splitlines():
        if line.startswith("\t"):
            body, _, comment = line.partition("//")
            yield kernel, comment.partition(":")[0].strip(), body.strip()
        elif label := LABEL.match(line):
            kernel = label.group(1)


def check_instruction(isa, text):
    for pattern, isas, why in FORBIDDEN if ANY_FORBIDDEN.search(text) else ():
        if (isas is None or isa in isas) and re.search(pattern, text):
            yield why
    if SCALED_MFMA.match(text):
        text = re.sub(r"/\*.*?\*/", "", text)  # the disassembler's own remark on a wrong register
        operands = [o.strip() for o in re.sub(r"\b(op_sel|op_sel_hi|cbsz|blgp|abid|neg)\S*:.*", "",
                                              text.partition(" ")[2]).split(",")]
        # v[16:17] holds no comma, so operands split cleanly: D A B C scale-A scale-B.
        for operand in operands[-2:]:
            if not re.match(r"^v\d+$", operand):
                yield f"scale operand {operand} of a scaled MFMA is not a VGPR: a hardware defect"


def check_kernel(kernel, budget, descriptor):
    if kernel[".private_segment_fixed_size"] or kernel.get(".uses_dynamic_stack"):
        yield f"uses {kernel['.private_segment_fixed_size']} bytes of scratch a lane"
    for what in ("sgpr", "vgpr"):
        if kernel[f".{what}_spill_count"]:
            yield f"spills {kernel[f'.{what}_spill_count']} {what}s"
    # Of a naked function the compiler does not know that it wants none; nobody dispatches it.
    hidden = [a[".value_kind"] for a in kernel.get(".args", [])
              if a[".value_kind"].startswith("hidden_") and kernel[".name"] not in JUMPING]
    if hidden:
        yield f"wants hidden arguments: {', '.join(hidden)}"
    group, private, kernarg = struct.unpack_from("<III", descriptor)
    if group != kernel[".group_segment_fixed_size"] or private or \
            kernarg != kernel[".kernarg_segment_size"]:
        yield "its descriptor and its metadata disagree"
    if budget is None:
        yield "has no declared budget (KERNEL of common/kernel.h writes it)"
        return
    used = dict(vgpr=kernel[".vgpr_count"], agpr=kernel[".agpr_count"],
                sgpr=kernel[".sgpr_count"], lds=kernel[".group_segment_fixed_size"],
                threads=kernel[".max_flat_workgroup_size"])
    for what, value in used.items():
        if what not in budget:
            yield f"its budget does not name {what}"
        elif value > budget[what]:
            yield f"uses {value} {what}, its budget is {budget[what]}"


def check(code, isa, disassembly):
    """Yields every broken rule as a line."""
    if code.machine != EM_AMDGPU or code.abi_version != ABI_VERSION_6:
        yield f"machine {code.machine}, ABI version {code.abi_version}: not a V6 AMDGPU object"
    metadata = code.metadata()
    target = metadata.get("amdhsa.target", "")
    if f"--{isa}:" not in target + ":":
        yield f"made for {target}, not {isa}"
    for symbol in code.symbols(".dynsym"):
        if symbol["section"] == 0:
            yield f"undefined symbol {symbol['name']}"
    for section in code.sections:
        if section["kind"] in (SHT_REL, SHT_RELA) and section["size"]:
            yield f"relocations in {section['name']}"
    budgets = code.budgets(isa)
    symbols = {s["name"]: s for s in code.symbols(".dynsym")}
    for kernel in metadata["amdhsa.kernels"]:
        name = kernel[".name"]
        descriptor = code.bytes_at(symbols[kernel[".symbol"]]["value"], 64)
        for why in check_kernel(kernel, budgets.pop(name, None), descriptor):
            yield f"{name}: {why}"
    for name in budgets:
        yield f"{name}: a budget without a kernel"
    for kernel, address, text in disassembly:
        for why in check_instruction(isa, text):
            yield f"{kernel}+{address}: {text}: {why}"
        if text.startswith("s_setpc") and kernel not in JUMPING:
            yield f"{kernel}+{address}: {text}: a jump into another kernel"


# How a wave begins that only knows its arguments' address, its workgroup and its thread.
WAY_BACK = 20  # bytes of instructions (backend/amdgpu/threaded.cc)
BRANCH_REACH = 4 * 32000
USER_SGPRS, WITH_WORKGROUP = 2, 1 << 7
KERNARG_POINTER = 1 << 3


def find_ends(code, disassembly):
    """Of each kernel that may be made to jump where it ends: the file offset of its s_endpgm, and of
    WAY_BACK bytes that nothing runs, in reach of a branch from there. Such a kernel has one end, and
    begins as common/jump.h says."""
    text = code.section(".text")
    to_file = text["offset"] - text["address"]
    symbols = {s["name"]: s for s in code.symbols(".dynsym")}
    bodies = sorted((s["value"], s["value"] + s["size"]) for s in symbols.values()
                    if s["size"] and text["address"] <= s["value"] < text["address"] + text["size"])
    stops = [start for start, _ in bodies[1:]] + [text["address"] + text["size"]]
    gaps = [end for (_, end), stop in zip(bodies, stops) if stop - end >= WAY_BACK]
    found = {}
    for kernel, address, instruction in disassembly:
        if instruction.startswith("s_endpgm"):
            found.setdefault(kernel, []).append(int(address, 16))
    out = {}
    for kernel in code.metadata()["amdhsa.kernels"]:
        at = found.get(kernel[".name"], [])
        rsrc2, properties, preload = struct.unpack_from(
            "<IHH", code.bytes_at(symbols[kernel[".symbol"]]["value"], 64), 52)
        plain = rsrc2 & 0xffff == WITH_WORKGROUP | USER_SGPRS << 1 and \
            properties == KERNARG_POINTER and preload == 0
        near = [g for g in gaps for end in at if abs(g - end) < BRANCH_REACH]
        if len(at) == 1 and plain and near and kernel[".name"] not in JUMPING:
            slot = min(near, key=lambda g: abs(g - at[0]))
            out[kernel[".name"]] = (at[0] + to_file, slot + to_file)
    return out


def describe(code, isa, name, disassembly):
    """The JSON of one image, kernels in name order."""
    sizes = {s["name"]: s["size"] for s in code.symbols(".dynsym")}
    ends = find_ends(code, disassembly)
    kernels = [dict(name=k[".name"], vgprs=k[".vgpr_count"], agprs=k[".agpr_count"],
                    sgprs=k[".sgpr_count"], lds_bytes=k[".group_segment_fixed_size"],
                    scratch_bytes=k[".private_segment_fixed_size"],
                    kernarg_bytes=k[".kernarg_segment_size"],
                    threads=k[".max_flat_workgroup_size"], code_bytes=sizes[k[".name"]],
                    end_at=ends.get(k[".name"], (0, 0))[0],
                    way_back_at=ends.get(k[".name"], (0, 0))[1])
               for k in code.metadata()["amdhsa.kernels"]]
    return dict(name=name, isa=isa, kernels=sorted(kernels, key=lambda k: k["name"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isa", required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--objdump", required=True)
    parser.add_argument("--out")
    parser.add_argument("object")
    args = parser.parse_args()
    try:
        with open(args.object, "rb") as file:
            code = CodeObject(file.read())
        disassembly = list(instructions(args.objdump, args.object))
        problems = list(check(code, args.isa, disassembly))
    except (Bad, KeyError, IndexError, struct.error) as error:
        problems = [f"cannot be read: {type(error).__name__} {error}"]
    for problem in problems:
        print(f"{args.name or args.object} ({args.isa}): {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(describe(code, args.isa, args.name, disassembly), file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
