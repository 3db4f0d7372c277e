#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes optab.inc: one row an (encoding family, opcode) pair of gfx942 and gfx950.

Usage: gen_optab.py <directory with optab_gfx942.json and optab_gfx950.json> > optab.inc

The JSON files ({"VOP2": {"1": "v_add_f32", ...}, ...}) say which opcodes exist. This script asks
LLVM's disassembler (libLLVM's C interface) what each field and each modifier bit of the encoding
does: it flips them one at a time and reads the printed text. Only facts come out of that: operand
order, register class, width in dwords, and which bits are refused, used, or ignored.
"""
import collections
import ctypes
import json
import re
import sys

LLVM = ctypes.CDLL("libLLVM.so.22.1")
for init in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
    getattr(LLVM, f"LLVMInitializeAMDGPU{init}")()
LLVM.LLVMCreateDisasmCPU.restype = ctypes.c_void_p
LLVM.LLVMCreateDisasmCPU.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p,
                                     ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
LLVM.LLVMDisasmInstruction.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64,
                                       ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
LLVM.LLVMDisasmInstruction.restype = ctypes.c_size_t


class Disassembler:
    def __init__(self, cpu):
        self.handle = LLVM.LLVMCreateDisasmCPU(b"amdgcn-amd-amdhsa", cpu.encode(), None, 0, None,
                                               None)
        self.text = ctypes.create_string_buffer(512)

    def __call__(self, word, size, tail=0x12345678):
        code = word.to_bytes(size, "little") + tail.to_bytes(4, "little") + bytes(12)
        length = LLVM.LLVMDisasmInstruction(self.handle, code, len(code), 0, self.text, 512)
        return (length, self.text.value.decode().strip()) if length else (0, "")


# Field layouts: name -> (lowest bit, width, the value that marks it in printed text).
SOP = {"SOP2": {"d": (16, 7, 10), "a": (0, 8, 20), "b": (8, 8, 40)},
       "SOPK": {"d": (16, 7, 10)},
       "SOP1": {"d": (16, 7, 10), "a": (0, 8, 20)},
       "SOPC": {"a": (0, 8, 20), "b": (8, 8, 40)},
       "SOPP": {}}
VOP = {"VOP2": {"d": (17, 8, 10), "a": (0, 9, 276), "b": (9, 8, 40)},
       "VOP1": {"d": (17, 8, 10), "a": (0, 9, 276)},
       "VOPC": {"a": (0, 9, 276), "b": (9, 8, 40)},
       "VOP3": {"d": (0, 8, 10), "e": (8, 7, 90), "a": (32, 9, 276), "b": (41, 9, 296),
                "c": (50, 9, 316)},
       "VOP3P": {"d": (0, 8, 10), "a": (32, 9, 276), "b": (41, 9, 296), "c": (50, 9, 316)}}
MEM = {"SMEM": {"r": (0, 6, 10), "d": (6, 7, 40)},
       "DS": {"A": (32, 8, 20), "D": (40, 8, 40), "E": (48, 8, 60), "d": (56, 8, 10)},
       "MUBUF": {"A": (32, 8, 20), "D": (40, 8, 44), "r": (48, 5, 8)},
       "MTBUF": {"A": (32, 8, 20), "D": (40, 8, 44), "r": (48, 5, 8)},
       "FLAT": {"A": (32, 8, 20), "D": (40, 8, 40), "d": (56, 8, 10)},
       "SCRATCH": {"A": (32, 8, 20), "D": (40, 8, 40), "d": (56, 8, 10)},
       "GLOBAL": {"A": (32, 8, 20), "D": (40, 8, 40), "d": (56, 8, 10)}}
FIELDS = {**SOP, **VOP, **MEM}
BASE = {"SOP2": lambda o: 2 << 30 | o << 23, "SOPK": lambda o: 0xB << 28 | o << 23,
        "SOP1": lambda o: 0x17D << 23 | o << 8, "SOPC": lambda o: 0x17E << 23 | o << 16,
        "SOPP": lambda o: 0x17F << 23 | o << 16,
        "SMEM": lambda o: 0x30 << 26 | o << 18 | 1 << 17,
        "VOP2": lambda o: o << 25, "VOP1": lambda o: 0x3F << 25 | o << 9,
        "VOPC": lambda o: 0x3E << 25 | o << 17, "VOP3": lambda o: 0x34 << 26 | o << 16,
        "VOP3P": lambda o: 0x1A7 << 23 | o << 16, "DS": lambda o: 0x36 << 26 | o << 17 | (o in GWS) << 16,
        "MUBUF": lambda o: 0x38 << 26 | o << 18, "MTBUF": lambda o: 0x3A << 26 | o << 15,
        "FLAT": lambda o: 0x37 << 26 | o << 18,
        "SCRATCH": lambda o: 0x37 << 26 | o << 18 | 1 << 14 | 0x7F << 48,
        "GLOBAL": lambda o: 0x37 << 26 | o << 18 | 2 << 14 | 0x7F << 48}
REGISTER = re.compile(r"^[-|]*([vsa])\[?(\d+)(?::(\d+))?\]?")
# Rows of the JSON that name an alias of another opcode or do not decode as an instruction.
NOT_OPCODES = {("SOPK", 29), ("SOPK", 30), ("SOPK", 31), ("VOP3P", 44)}
# Opcodes that the JSON lacks.
MORE_OPCODES = {("VOP1", 0): "v_nop",
                ("DS", 152): "ds_gws_sema_release_all", ("DS", 153): "ds_gws_init",
                ("DS", 154): "ds_gws_sema_v", ("DS", 155): "ds_gws_sema_br",
                ("DS", 156): "ds_gws_sema_p", ("DS", 157): "ds_gws_barrier"}
GWS = range(152, 158)  # of DS: bit 16, gds, must be set (decode.cc asks for it)


def size_of(family):
    return 4 if family in SOP or family in ("VOP1", "VOP2", "VOPC") else 8


def mnemonic(text):
    return text.split(" ")[0]


def bare(text):
    return re.sub(r"_(e32|e64|dpp|sdwa)$", "", mnemonic(text))


def put(word, field, value):
    low, width, _ = field
    return word & ~(((1 << width) - 1) << low) | value << low


class Prober:
    def __init__(self, isa):
        self.dis = Disassembler(isa)

    def base(self, family, op):
        """The encoding with every operand field that may be set carrying its mark."""
        size, word = size_of(family), BASE[family](op)
        if family == "SMEM" and not self.dis(word, size)[0]:
            word &= ~(1 << 17)
        if family in ("VOP3", "VOP3P", "VOP1", "VOP2", "VOPC"):
            for name in "abc":
                if name in FIELDS[family] and FIELDS[family][name][1] == 9:
                    trial = put(word, FIELDS[family][name], FIELDS[family][name][2])
                    if self.dis(trial, size)[0]:
                        word = trial
        first = bare(self.dis(word, size)[1])
        for name, field in FIELDS[family].items():
            if name == "e":
                continue
            trial = put(word, field, field[2])
            length, text = self.dis(trial, size)
            if length and (not first or bare(text) == first):
                word, first = trial, bare(text)
        return word

    def source_type(self, family, word, name, letter, width, position):
        """I b32, H f16, h 16-bit integer, D 64-bit, V/S registers only, M/N MFMA's C, L lane."""
        field, size = FIELDS[family][name], size_of(family)
        if family == "VOP3" and bare(self.dis(word, size)[1]) in ("v_readlane_b32",
                                                                  "v_writelane_b32"):
            is_lane = name == "b" or bare(self.dis(word, size)[1]) == "v_writelane_b32"
            return "L" if is_lane else "V"
        length, text = self.dis(put(word, field, 248), size)
        if not length or "/*" in text.split(",")[position]:
            scalar, text = self.dis(put(word, field, 20), size)
            allowed = scalar and "/*" not in text.split(",")[position]
            return "S" if allowed else letter.upper()
        inline = text.split(",")[position].split()[-1 if position == 0 else 0]
        scalar, text = self.dis(put(word, field, 20), size)
        no_scalar = not scalar or "/*" in text.split(",")[position]
        if no_scalar:
            return "N" if "0.15915494309189532" in inline else "M"
        if "0.15915494309189532" in inline:
            return "D"
        if "0x3118" in inline:
            return "h"
        if family in ("VOP3", "VOP3P"):
            return "I"  # no literals here, and some of them crash LLVM
        literal = self.dis(put(word, field, 255), size)[1]
        return "H" if re.search(r"0x5678\b", literal) else "I"

    def operands(self, family, word):
        size = size_of(family)
        text = self.dis(word, size)[1]
        rest = text[len(mnemonic(text)):].strip()
        out = []
        by_value = {}
        for name, field in FIELDS[family].items():
            value = field[2]
            if family in ("MUBUF", "MTBUF") and name == "r":
                value = 32
            if family == "SMEM" and name == "r":
                value = 20
            if name in "abc" and field[1] == 9:
                value -= 256
            by_value[value] = name
        by_value.pop(90, None)
        for position, token in enumerate(rest.split(", ") if rest else []):
            token = token.split(" ")[0]
            if token == "vcc":
                out.append("v-0")
                continue
            if re.match(r"^s\[0:1\]$", token) and family == "VOP3":
                out.append("eS2")
                continue
            match = REGISTER.match(token)
            if not match:
                if family in ("VOP1", "VOP2") and token.startswith("0x"):
                    out.append("k-1")
                continue
            letter, low = match.group(1), int(match.group(2))
            width = int(match.group(3) or low) - low + 1
            name = by_value.get(low)
            if name is None and family in MEM:
                continue  # soffset and saddr are printed by rule
            if name is None:
                raise ValueError(f"{text}: {token}")
            kind = letter.upper()
            if name in "abc" and family not in MEM:
                if FIELDS[family][name][1] == 8 and family in VOP:
                    kind = "V"
                elif kind == "A":
                    kind = "A"
                else:
                    kind = self.source_type(family, word, name, letter, width, position)
                    wide = self.dis(word, size)[1]
                    if kind == "S" and family in VOP:
                        width = 2 if ":" in wide.split(", ")[position] else 1
            out.append(f"{name}{kind}{width}")
        return " ".join(out)

    def bits(self, family, word, which, tail=None):
        """(refused, used) masks over the bits of `which`, of the word or of the extra dword."""
        size = size_of(family)
        name = bare(self.dis(word, size, *([] if tail is None else [tail]))[1])
        reference = self.dis(word, size, *([] if tail is None else [tail]))[1]
        refused = used = 0
        for bit in which:
            if tail is None:
                length, text = self.dis(word ^ 1 << bit, size)
            else:
                length, text = self.dis(word, size, tail ^ 1 << bit)
            if not length or bare(text) != name:
                refused |= 1 << bit
            elif text != reference:
                used |= 1 << bit
        return refused, used

    def row(self, family, op):
        size, word = size_of(family), self.base(family, op)
        length, text = self.dis(word, size)
        if not length:
            raise ValueError(f"{family} {op} does not decode")
        flags = 1 if re.search(r"_(e32|e64)$", mnemonic(text)) else 0
        refused = used = sdwa_no = sdwa_used = dpp_no = dpp_used = 0
        if family in ("VOP3", "VOP3P"):
            plain = word
            if "eS2" in self.operands(family, word):
                which = [15, 59, 60, 61, 62, 63]
            else:
                which = list(range(8, 16)) + list(range(59, 64))
            refused, used = self.bits(family, plain, which)
            for name in "abc":
                low, width, _ = FIELDS[family][name]
                zero = put(word, FIELDS[family][name], 0)
                if name not in [o[0] for o in self.operands(family, word).split()]:
                    no, _ = self.bits(family, zero, range(low, low + width))
                    refused |= no
        elif family == "VOP1" and not self.operands(family, word):
            refused, _ = self.bits(family, word, range(17, 25))
        elif family == "DS" or family in MEM:
            names = [o[0] for o in self.operands(family, word).split()]
            which = {"DS": [16, 25] + list(range(0, 16)), "SMEM": [14, 15, 16, 17],
                     "MUBUF": [12, 13, 14, 15, 16, 17, 25, 53, 54, 55],
                     "MTBUF": [12, 13, 14, 53, 54, 55]}.get(family, [13, 16, 17, 25, 55])
            refused, used = self.bits(family, word, which)
            for name, field in FIELDS[family].items():
                if name not in names:
                    low, width, _ = field
                    no, _ = self.bits(family, put(word, field, 0), range(low, low + width))
                    refused |= no
            if family == "DS" and op in GWS:
                refused, used = refused & ~(1 << 16), used | 1 << 16
            if family in ("MUBUF", "MTBUF"):
                refused &= ~(0xFF << 32)  # vaddr: printed only with offen/idxen
            if family == "SCRATCH":
                refused &= ~(0xFF << 32)
            if family == "SMEM" and "r" in names:
                refused &= ~(1 << 17)
            if "GLOBAL" == family and "atomic" in text:
                refused &= ~(0xFF << 56)
        if family in ("VOP1", "VOP2", "VOPC"):
            tail = 20 | 6 << 16 | (0 if family == "VOP1" else 6 << 24) | (0 if family == "VOPC" else 6 << 8)
            if mnemonic(self.dis(put(word, (0, 9, 0), 249), 4, tail)[1]).endswith("_sdwa"):
                flags |= 2
                # Reserved selects (7, or dst_unused 3) crash LLVM: leave those fields alone.
                which = [13, 14, 15, 19, 20, 21, 22, 23]
                which += [] if family == "VOP1" else [27, 28, 29, 30, 31]
                sdwa_no, sdwa_used = self.bits(family, put(word, (0, 9, 0), 249), which, tail)
            tail = 20 | 0xFF << 24 | 0x130 << 8
            # LLVM refuses most controls on 64-bit operands; row_newbcast:0 (0x150) is legal there.
            tail64 = 20 | 0xFF << 24 | 0x150 << 8
            for trial, extra in ((tail, 4), (tail64, 8)):
                printed = self.dis(put(word, (0, 9, 0), 250), 4, trial)[1]
                if mnemonic(printed).endswith("_dpp") and "/*" not in printed:
                    flags |= extra
                    dpp_no, dpp_used = self.bits(family, put(word, (0, 9, 0), 250), range(17, 24),
                                                 trial)
                    break
        return (bare(text), self.operands(family, word), flags, refused, used, sdwa_no, sdwa_used,
                dpp_no, dpp_used)


def main():
    rows = collections.OrderedDict()
    for bit, isa in ((1, "gfx942"), (2, "gfx950")):
        prober = Prober(isa)
        with open(f"{sys.argv[1]}/optab_{isa}.json", encoding="utf-8") as f:
            table = json.load(f)
        for (family, op), name in MORE_OPCODES.items():
            table[family][str(op)] = name
        for family in FIELDS:
            for op in sorted(int(o) for o in table[family]):
                if (family, op) in NOT_OPCODES:
                    continue
                row = (family, op) + prober.row(family, op)
                if row[2] != table[family][str(op)]:
                    print(f"{row[2]} is not {table[family][str(op)]}", file=sys.stderr)
                rows[row] = rows.get(row, 0) | bit
    masks = collections.OrderedDict()
    print("// SPDX-License-Identifier: MIT\n// Made by gen_optab.py; do not edit.\n// clang-format off")
    print("#ifdef MAINARCH_OPTAB_ROWS")
    print("// family, opcode, isa bits (1 gfx942, 2 gfx950), mnemonic, operands, flags, mask row")
    for row, isas in sorted(rows.items(), key=lambda r: (list(FIELDS).index(r[0][0]), r[0][1])):
        family, op, name, operands, flags = row[:5]
        index = masks.setdefault(row[5:], len(masks))
        print(f'{{Family::k{family.capitalize()}, {op}, {isas}, "{name}", "{operands}", {flags}, '
              f'{index}}},')
    print("#endif\n#ifdef MAINARCH_OPTAB_MASKS")
    print("// refused, used (of the instruction); the same of the SDWA dword and of the DPP dword")
    for mask in masks:
        print("{" + ", ".join(f"{m:#x}" for m in mask) + "},")
    print("#endif")


if __name__ == "__main__":
    main()
