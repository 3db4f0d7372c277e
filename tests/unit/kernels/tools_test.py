#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each rule of kernels/tools/check.py and lint.py, broken once on purpose, must be named.

  tools_test.py <source root> <clang> <llvm-objdump> [test ...]      prints TAP
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT, CLANG, OBJDUMP = sys.argv[1:4]
TOOLS = os.path.join(ROOT, "kernels", "tools")
sys.dont_write_bytecode = True
sys.path.insert(0, TOOLS)
import code_object  # noqa: E402
import lint  # noqa: E402

FLAGS = ("-x c++ -std=c++20 --target=amdgcn-amd-amdhsa -nogpulib -ffreestanding -nostdlib "
         "-fno-exceptions -fno-rtti -O3 -mcode-object-version=6").split()
ATTRIBUTES = ("[[clang::amdgpu_kernel, clang::amdgpu_flat_work_group_size(256, 256), "
              "gnu::visibility(\"protected\")]]")
BUDGET = '__asm__(".pushsection .mainarch.budget,\\"\\",@progbits\\n.ascii \\"{}\\\\n\\"\\n.popsection");'
FINE = "k threads=256 vgpr=128 sgpr=112 agpr=64 lds=4096"
GLOBAL = "__attribute__((address_space(1)))"


def source(body, arguments=f"{GLOBAL} float* p", budget=FINE, before=""):
    text = BUDGET.format(budget) if budget else ""
    return f'{text}\n{before}\nextern "C" {ATTRIBUTES} void k({arguments}) {{ {body} }}\n'


# name -> (source, ISA, extra flags, part of the complaint; None: accepted)
CHECKS = {
    "a plain kernel": (source("p[0] = 1;"), "gfx942", [], None),
    "no budget": (source("p[0] = 1;", budget=None), "gfx950", [], "no declared budget"),
    "registers over budget":
        (source("p[0] = 1;", budget="k threads=256 vgpr=1 sgpr=112"), "gfx950", [],
         "its budget is 1"),
    "an override for one ISA":
        (source("p[0] = 1;", budget="k threads=256 vgpr=9 gfx950.vgpr=1 sgpr=112"), "gfx950", [],
         "its budget is 1"),
    "an override for another ISA":
        (source("p[0] = 1;", budget="k threads=256 vgpr=9 gfx950.vgpr=1 sgpr=112"), "gfx942", [],
         None),
    "lds over budget":
        (source("l[p[1] > 0] = 1; __builtin_amdgcn_s_barrier(); p[0] = l[1];",
                budget="k threads=256 vgpr=64 sgpr=112 lds=4",
                before="[[clang::loader_uninitialized]] static __attribute__((address_space(3))) "
                       "float l[2];"), "gfx942", [], "uses 8 lds"),
    "a budget that leaves out sgpr":
        (source("p[0] = 1;", budget="k threads=256 vgpr=9"), "gfx942", [], "does not name sgpr"),
    "a budget without a kernel":
        (source("p[0] = 1;", before=BUDGET.format("ghost threads=256 vgpr=1 sgpr=1")), "gfx942", [],
         "ghost: a budget without a kernel"),
    "another workgroup size":
        (source("p[0] = 1;").replace("256, 256", "512, 512"), "gfx942", [], "512 threads"),
    "scratch":
        (source("float a[64]; for (int i = 0; i < 64; ++i) a[i] = p[i * i]; "
                "p[0] = a[(int)p[1] & 63] + a[(int)p[2] & 63];"), "gfx950", ["-O1"],
         "bytes of scratch"),
    "an undefined symbol":
        (source("p[0] = ghost;", before=f"extern \"C\" [[gnu::visibility(\"default\")]] {GLOBAL} float ghost;"), "gfx942",
         ["-Wl,--unresolved-symbols=ignore-all"], "undefined symbol ghost"),
    "a relocation":
        (source("p[0] = **(int " + GLOBAL + "* " + GLOBAL + "*)&q;",
                before=f"{GLOBAL} int a; extern {GLOBAL} int* {GLOBAL} q; "
                       f"{GLOBAL} int* {GLOBAL} q = &a;"), "gfx942", [], "relocations in"),
    "hidden arguments":
        (source("p[0] = ((__attribute__((address_space(4))) const int*)"
                "__builtin_amdgcn_implicitarg_ptr())[0];"), "gfx942", [], "hidden arguments"),
    "a flat access":
        (source("l[0] = p[2]; __builtin_amdgcn_s_barrier(); "
                "p[0] = *(p[1] > 0 ? (float*)p + 3 : (float*)l);",
                before="[[clang::loader_uninitialized]] static __attribute__((address_space(3))) "
                       "float l[2];"), "gfx950", [], "a FLAT access"),
    "a call": (source("p[0] = f(p[1]);", before="[[gnu::noinline]] static float f(float x) "
                      "{ for (int i = 0; i < 99; ++i) x = x * x + 1; return x; }"), "gfx942", [],
               "a call"),
    "a float atomic":
        (source("__scoped_atomic_fetch_add(p, 1.0f, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);"),
         "gfx942", ["-munsafe-fp-atomics"], "a floating-point atomic"),
    "a change of MODE":
        (source("__builtin_amdgcn_s_setreg(1 | 3 << 11, 5); p[0] = p[1] + p[2];"), "gfx950", [],
         "a change of MODE"),
    "the packed fma erratum on gfx950":
        (source('__asm__ volatile("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1] op_sel:[0,1,0]" ::: '
                '"v0", "v1", "v2", "v3", "v4", "v5");'), "gfx950", [], "silicon erratum"),
    "the same form on gfx942":
        (source('__asm__ volatile("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1] op_sel:[0,1,0]" ::: '
                '"v0", "v1", "v2", "v3", "v4", "v5");'), "gfx942", [], None),
    # The assembler refuses s4, so in words: scale operands s4 and v6.
    "a scalar scale of a scaled matrix instruction":
        (source('__asm__ volatile(".long 0xd3ac0000, 0x00020c04, 0xd3ad0800, 0x82023d16");'),
         "gfx950", [], "scale operand s4"),
    "vector scales of a scaled matrix instruction":
        (source('__asm__ volatile("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], '
                'v[0:3], v21, v20 op_sel_hi:[0,0,0]" ::: "v0","v1","v2","v3","v4","v5","v6","v7",'
                '"v8","v9","v10","v11","v12","v13","v14","v15","v16","v17","v18","v19","v20",'
                '"v21");'), "gfx950", [], None),
    "LDS-DMA of three dwords":
        (source('__asm__ volatile("global_load_lds_dwordx3 v[0:1], off" ::: "v0", "v1");'),
         "gfx950", [], "two or three dwords"),
    "not an instruction":
        (source('__asm__ volatile(".long 0xffffffff");'), "gfx942", [], "not an instruction"),
}

# name -> (file under kernels/, text, part of the complaint; None: accepted)
LINTS = {
    "a bit cast": ("ops/x.h", "float f(v4 v) { return __builtin_bit_cast(float, v[1]); }",
                   "by its value|use BitCast"),
    "a bit cast in a comment": ("ops/x.h", "// __builtin_bit_cast(float, v[1])\n", None),
    "a raw barrier": ("ops/x.h", "__builtin_amdgcn_s_barrier();", "does not order LDS"),
    "a raw atomic": ("entry/x.cc", "__scoped_atomic_load_n(p, 0, 0);", "common/sync.h"),
    "inline assembly": ("ops/x.h", '__asm__ volatile("s_nop 0");', "wait states"),
    "inline assembly behind an empty string": ("ops/x.h", '__asm__ volatile("" "s_nop 0" : "+v"(x));', "wait states"),
    "an empty one that is a fence": ("ops/x.h", '__asm__ volatile("" : "+v"(x) : : "memory");', "wait states"),
    "a raw matrix builtin": ("ops/x.h", "__builtin_amdgcn_mfma_f32_4x4x1f32(a);", "wrappers"),
    "partial unrolling": ("ops/x.h", "#pragma unroll 4\nfor (;;) {}", "partial unrolling"),
    "an unrolled matrix loop":
        ("ops/x.h", "#pragma clang loop unroll(full)\nfor (int i = 0; i < n; ++i) {\n"
                    " c = isa::Mfma16x16x32Bf16(a, b, c);\n}", "matrix instructions"),
    "a matrix instruction behind an unrolled loop":
        ("ops/x.h", "#pragma clang loop unroll(full)\nfor (int i = 0; i < 4; ++i) {\n x += i;\n}\n"
                    "c = isa::Mfma16x16x32Bf16(a, b, c);", None),
    "a library header": ("ops/x.h", "#include <cmath>\n", "freestanding"),
    "a chip compare": ("ops/x.h", "#ifdef __gfx950__\n", "chip differences"),
    "double": ("ops/x.h", "double x;", "no double"),
    "a kernel in a header": ("ops/x.h", 'KERNEL(a, A, "")\n', "declared in entry/"),
    "an argument struct without its size":
        ("args.h", "struct NewArgs {\n  int x;\n};\n", "no size assertion"),
}


def run_check(path, isa):
    got = subprocess.run([sys.executable, os.path.join(TOOLS, "check.py"), "--isa", isa,
                          "--objdump", OBJDUMP, path], capture_output=True, text=True)
    return got.returncode, got.stderr


def judge(code, text, want):
    if want is None:
        return "" if code == 0 else f"refused: {text}"
    if code == 0:
        return f"accepted, expected: {want}"
    return "" if any(part in text for part in want.split("|")) else f"said: {text}"


def check_rule(directory, name):
    text, isa, extra, want = CHECKS[name]
    path = os.path.join(directory, "k.cc")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    built = subprocess.run([CLANG, *FLAGS, f"-mcpu={isa}:sramecc+:xnack-", *extra, "-o",
                            path + ".hsaco", path], capture_output=True, text=True)
    if built.returncode:
        return f"does not compile: {built.stderr[:400]}"
    return judge(*run_check(path + ".hsaco", isa), want)


def check_damage(directory):
    """Truncated and foreign files are refused with a line, never a traceback."""
    path = os.path.join(directory, "good.cc")
    with open(path, "w", encoding="utf-8") as file:
        file.write(CHECKS["a plain kernel"][0])
    subprocess.run([CLANG, *FLAGS, "-mcpu=gfx942:sramecc+:xnack-", "-o", path + ".hsaco", path],
                   check=True)
    with open(path + ".hsaco", "rb") as file:
        good = file.read()
    code, text = run_check(path + ".hsaco", "gfx950")
    if code == 0 or "not gfx950" not in text:
        yield f"a gfx942 object passed for gfx950: {text}"
    damaged = os.path.join(directory, "damaged.hsaco")
    for size in (0, 5, 63, 64, 200, 700, len(good) // 2, len(good) - 1):
        with open(damaged, "wb") as file:
            file.write(good[:size])
        code, text = run_check(damaged, "gfx942")
        if code == 0 or "Traceback" in text:
            yield f"{size} of {len(good)} bytes: {text or 'accepted'}"
    if code_object.unpack_msgpack(b"\x82\xa1a\x01\xa1b\x93\xcd\x01\x00\xc3\xff")[0] != {
            "a": 1, "b": [256, True, -1]}:
        yield "msgpack is read wrong"


MUTANTS = """
__builtin_amdgcn_fence(__ATOMIC_RELEASE, ""); __scoped_atomic_store_n(q, 1u, __ATOMIC_RELAXED, 0);
l[__builtin_amdgcn_workitem_id_x() & 1] = p[1]; __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
__builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, ""); p[0] = l[1];
__asm__ volatile("s_nop 3\\n\\ts_nop 0");
"""


def check_mutants(directory):
    """Each mutant differs from the object in one instruction of the kind it says."""
    path = os.path.join(directory, "m.cc")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source(MUTANTS, f"{GLOBAL} float* p, {GLOBAL} unsigned* q",
                          before="[[clang::loader_uninitialized]] static "
                                 "__attribute__((address_space(3))) float l[2];"))
    subprocess.run([CLANG, *FLAGS, "-mcpu=gfx950:sramecc+:xnack-", "-o", path + ".hsaco", path],
                   check=True)
    out = os.path.join(directory, "mutants")
    subprocess.run([sys.executable, os.path.join(TOOLS, "mutate.py"), "--objdump", OBJDUMP,
                    "--out", out, path + ".hsaco"], check=True, capture_output=True)
    with open(os.path.join(out, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    with open(path + ".hsaco", "rb") as file:
        good = file.read()
    counts = {}
    for mutant in manifest:
        kind = mutant["kind"]
        counts[kind] = counts.get(kind, 0) + 1
        with open(os.path.join(out, mutant["file"]), "rb") as file:
            data = file.read()
        changed = [i for i in range(len(good)) if good[i] != data[i]]
        if len(data) != len(good) or not changed or changed[-1] - changed[0] >= 8:
            yield f"{mutant}: {len(changed)} bytes changed"
    if counts.get("nop") != 1 or counts.get("barrier") != 1:
        yield f"expected one nop and one barrier: {counts}"
    if not all(counts.get(k, 0) >= 1 for k in ("waitcnt", "fence", "scope")):
        yield f"a kind is missing: {counts}"


def lint_rule(name):
    file, text, want = LINTS[name]
    found = "; ".join(why for _, why in lint.lint(file, text))
    return judge(1 if found else 0, found, want)


def main():
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for name in CHECKS:
            results.append((f"check: {name}", check_rule(directory, name)))
        results.append(("check: damaged files", "; ".join(check_damage(directory))))
        results.append(("mutate: one instruction each", "; ".join(check_mutants(directory))))
    for name in LINTS:
        results.append((f"lint: {name}", lint_rule(name)))
    print(f"1..{len(results)}")
    for i, (name, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {i} - {name}")
        for line in wrong.splitlines():
            print(f"# {line}")
    sys.exit(any(wrong for _, wrong in results))


if __name__ == "__main__":
    main()
