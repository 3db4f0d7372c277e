#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A decode step's launches, modelled, beside what AMD's own kernels of the same shapes take, measured.

usage: decode.py --gemm CSV --fmoe CSV [--mainarch PROGRAM] [--format F ...] [--rows N ...] [--tp N ...] [--gfx G ...]

The step is Qwen3-235B-A22B's, one of --tp GPUs, by `mainarch time`; CSV are extracts of the tables of ROCm/aiter's tuner
(gfx,cus,format,M,N,K,us,library,file and gfx,cus,act,weights,scales,tokens,hidden,width,experts,topk,us_up,us_down,us,file),
of which nothing is in this repository. Beside a launch stands the least that any library of the table took for its shape
and so many rows, or where there is none for the next more rows, which are named; a dash where there is none.

Ours do more: rows are normed on the way into a product, and behind the output of attention and the experts residual and
the next norm's sums are added; attention writes its own keys and values. Theirs are launches of their own.
"""
import argparse
import csv
import json
import subprocess
import sys

MODEL = "qwen3-235b-a22b"
HIDDEN, HEADS, KV_HEADS, HEAD, EXPERTS, TOP, WIDTH, VOCAB = 4096, 64, 4, 128, 128, 8, 1536, 151936
GEMM = {"bf16": ("bf16",), "fp8-block": ("fp8 block",), "mxfp4": ("mxfp4 x mxfp4",)}
FMOE = {"bf16": ("bfloat16", "No"), "fp8-block": ("float8", "per_1x128"), "mxfp4": ("float4", "per_1x32")}


def step(options, gfx, name, rows, tp):
    command = [options.mainarch, "time", "--preset", MODEL, "--device", "sim:" + gfx, "--format", name, "--rows", str(rows),
               "--tp", str(tp), "--run-layers", str(options.run_layers), "--context", str(options.context), "--waits", "0",
               "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return json.loads(done.stdout)


def least(rows, count, key):
    """The fastest of the fewest rows that are as many as `count`: (rows, us), or None."""
    rows = [r for r in rows if int(r[key]) >= count]
    if not rows:
        return None
    fewest = min(int(r[key]) for r in rows)
    return fewest, min(float(r["us"]) for r in rows if int(r[key]) == fewest)


def theirs(tables, gfx, name, rows, op, tp):
    gemm, fmoe = tables
    kv = max(1, KV_HEADS // tp)
    shapes = {"norm_matmul": ((HEADS // tp + 2 * kv) * HEAD, HIDDEN), "matmul_add": (HIDDEN, HEADS // tp * HEAD),
              "logits": (VOCAB // tp, HIDDEN)}
    if op.startswith("experts"):
        form, scales = FMOE[name]
        mine = [r for r in fmoe if r["gfx"] == gfx and r["weights"].startswith(form) and r["scales"] == scales
                and (int(r["hidden"]), int(r["width"]), int(r["experts"]), int(r["topk"])) ==
                (HIDDEN, WIDTH // tp, EXPERTS, TOP)]
        return least(mine, rows, "tokens")
    if op not in shapes:
        return None
    form = ("bf16",) if op == "logits" else GEMM[name]
    mine = [r for r in gemm if r["gfx"] == gfx and r["format"] in form and (int(r["N"]), int(r["K"])) == shapes[op]]
    return least(mine, rows, "M")


def show(text):
    print("| " + " | ".join(text) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gemm", required=True)
    parser.add_argument("--fmoe", required=True)
    parser.add_argument("--mainarch", default="mainarch")
    parser.add_argument("--format", nargs="+", default=list(GEMM), choices=list(GEMM))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--tp", nargs="+", type=int, default=[8])
    parser.add_argument("--gfx", nargs="+", default=["gfx950", "gfx942"])
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--run-layers", type=int, default=4)
    options = parser.parse_args()
    tables = []
    for path in (options.gemm, options.fmoe):
        with open(path, newline="", encoding="utf-8") as file:
            tables.append(list(csv.DictReader(file)))
    show(["chip", "GPUs", "weights", "rows", "launch", "us", "floor us", "of floor", "theirs us", "of theirs"])
    show(["---"] * 10)
    error = set()
    for gfx in options.gfx:
        for tp in options.tp:
            for name in options.format:
                for rows in options.rows:
                    report = step(options, gfx, name, rows, tp)
                    error.add(report["model_error"])
                    begin = [gfx, str(tp), name, str(rows)]
                    for op in report["ops"]:
                        us, floor = op["modelled_us"], op["floor_us"]
                        found = theirs(tables, gfx, name, rows, op["name"], tp)
                        beside = ["-", "-"]
                        if found is not None:
                            beside = [f"{found[1]:.1f}" + ("" if found[0] == rows else f" ({found[0]} rows)"),
                                      f"{us / found[1]:.2f}"]
                        show(begin + [op["name"], f"{us:.2f}", f"{floor:.2f}", f"{100 * floor / us:.0f} %"] + beside)
                    us, floor = report["modelled_us"], report["floor_us"]
                    show(begin + [f"step, {1e6 / us:.0f} a second", f"{us:.0f}", f"{floor:.0f}", f"{100 * floor / us:.0f} %",
                                  "-", "-"])
    for text in sorted(error):
        print(f"\nmodelled, not measured: {text}")


main()
