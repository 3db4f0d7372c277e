# SPDX-License-Identifier: MIT
"""AMD's fused mixture-of-experts kernels, as cases of aiter_launch.py: out = sum over a token's experts e of weight * W2[e] act(W1[e] x), in one
kernel, whose parts are added in the output. The argument buffer is that of aiter's csrc/py_itfs_cu/asm_fmoe.cu; what each word of a kernel's
name means, its tables say: g1u1 has gate and up, g1u0 a gate alone; tkw1 puts the weights on x; multix has an x for each of a token's experts
(scaled by their own smooth scales); ps, workgroups that stay and take one piece after another."""

import os
import re

import numpy as np

import aiter_launch as al
from aiter_products import case, table, up

TOKENS, EXPERTS, TOPK = 5, 3, 2
PREFETCHED = 1 << 17  # bytes behind a weight that kernels load ahead and do not use
# Errors of the intermediate values' quantisation, over the output's root mean square: half a step of 3 bits of mantissa, at most 2^-4 of each
# value, a root of a third of that in the mean; of i8 a step by truncation, 1/127 of a row's
# largest, which is about seven root mean squares.
REQUANTISED = {"fp8": 0.04, "i8": 0.045, "none": 0.0}


def gelu(x):
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def silu(x):
    return x / (1 + np.exp(-x))


def routed(rng, block):
    """Who goes where: ids and weights [tokens, topk]; and as the kernels want it, rows of `block` for each expert: token | choice << 24."""
    ids = np.stack([rng.permutation(EXPERTS)[:TOPK] for _ in range(TOKENS)])
    weights = rng.uniform(0.2, 1, ids.shape).astype(np.float32)
    rows, row_weights, experts = [], [], []
    for expert in range(EXPERTS):
        mine = [(t, j) for t in range(TOKENS) for j in range(TOPK) if ids[t, j] == expert]
        for at in range(0, len(mine), block):
            part = mine[at : at + block]
            rows += [t | j << 24 for t, j in part] + [TOKENS | TOPK << 24] * (block - len(part))
            row_weights += [weights[t, j] for t, j in part] + [0] * (block - len(part))
            experts.append(expert)
    return ids, weights, np.array(rows, np.uint32), np.array(row_weights, np.float32), np.array(experts, np.uint32)


def by_blocks(w, chip):
    """fp8 with one scale for each 128 x 128 of [experts, rows, k]: codes, values with their scales, scales."""
    e, rows, k = w.shape
    tiles = w.reshape(e, rows // 128, 128, k // 128, 128)
    scale = (np.abs(tiles).max((2, 4), keepdims=True) / al.fp8_largest(chip)).astype(np.float32)
    codes = al.to_fp8(tiles / scale, chip)
    values = al.fp8_values(chip)[codes].astype(np.float64) * scale
    return codes.reshape(w.shape), values.reshape(w.shape), scale.reshape(e, -1)


def fused(chip, row, form, name):
    """`form`: i8, fp8, block (fp8 by blocks), none (16 bits)."""
    half = name.startswith("fmoe_fp16")
    gelus, gated, smooth = "gelu" in name, "g1u1" in name, int(row["smf"])
    if form == "i8" and not gated and smooth == 0:
        smooth = 2  # its launcher has no other way
    block, width = int(row["subGU_m"]), int(row["subGU_n"])

    def from16(codes):
        return codes.view(np.float16).astype(np.float64) if half else al.from_bf16(codes).astype(np.float64)

    def make(launch):
        if form == "i8" and "tkw1" in name:
            raise NotImplementedError("aiter's launcher has no way to it")
        if row.get("flat", "0") not in ("0", "", None):
            raise NotImplementedError("its rows are not sorted by the host: another grid")
        rng = np.random.default_rng(6)
        inter = width
        # What x and the output are wide: those that add to 512 columns at once do nothing for less.
        dim = 256 if gated or "atm" not in name and smooth != 1 else 1024
        x = rng.standard_normal((TOKENS, dim))
        w1 = rng.standard_normal((EXPERTS, inter * (2 if gated else 1), dim)) / 10
        w2 = rng.standard_normal((EXPERTS, dim, inter)) / 10
        ids, weights, rows, row_weights, experts = routed(rng, block)
        smooth1, smooth2 = (rng.uniform(0.5, 1.5, (EXPERTS, n)).astype(np.float32) if smooth else np.ones((EXPERTS, n), np.float32) for n in (dim, inter))
        element = 2 if form == "none" else 1
        xq = w1q = w2q = None
        many = x[None, :, :] * smooth1[ids.T] if smooth == 2 else x[None]
        if form == "none":
            # bf16 whatever the name says: fp16 is of the output.
            xc, w1c, w2c = (al.to_bf16(y) for y in (many, w1, w2))
            xv, w1v, w2v = (al.from_bf16(y).astype(np.float64) for y in (xc, w1c, w2c))
        elif form == "block":
            codes, values, xq = al.quantised(many.reshape(1, TOKENS, dim // 128, 128), "fp8", chip)
            xc, xv = codes.reshape(many.shape), (values.astype(np.float64) * xq).reshape(many.shape)
            xq = np.ascontiguousarray(xq[0, :, :, 0].T)
            (w1c, w1v, w1q), (w2c, w2v, w2q) = by_blocks(w1, chip), by_blocks(w2, chip)
        elif smooth == 1:
            # The kernel scales and quantises x, which is bf16 here too.
            xc, xq = al.to_bf16(x), smooth1
            xv = al.from_bf16(xc).astype(np.float64)[None, :, :] * smooth1[ids.T]
            (w1c, w1v, w1q), (w2c, w2v, w2q) = (al.quantised(y, form, chip) for y in (w1, w2))
            w1v, w2v = (v.astype(np.float64) * s for v, s in ((w1v, w1q), (w2v, w2q)))
        else:
            (xc, xv, xq), (w1c, w1v, w1q), (w2c, w2v, w2q) = (al.quantised(y, form, chip) for y in (many, w1, w2))
            xv, w1v, w2v = (v.astype(np.float64) * s for v, s in ((xv, xq), (w1v, w1q), (w2v, w2q)))
        launch.input("x", xc, 4096)
        launch.input("w1", al.shuffled(w1c), PREFETCHED)
        launch.input("w2", al.shuffled(w2c), PREFETCHED)
        launch.input("count", np.array([len(rows), TOKENS], np.uint32))
        launch.input("rows", rows, 4096)
        launch.input("row_weights", row_weights, 4096)
        launch.input("row_experts", experts, 4096)
        for buffer, scales in (("xq", xq), ("w1q", w1q), ("w2q", w2q)):
            if scales is not None:
                launch.input(buffer, scales, 4096)
        if smooth:
            launch.input("smooth2", smooth2, 4096)
        launch.output("out", (TOKENS, dim), np.uint16)
        pieces = up(inter, width)
        total = (8 if block == 64 else 2) * pieces
        quant = form != "none"
        launch.set("out", "x", "w1", "count", "w2", *(("xq", "w1q", "w2q") if quant else (None,) * 3), "smooth2" if smooth else None, "rows",
                   "row_weights", "row_experts", dim, inter, TOKENS, EXPERTS, dim * xc.itemsize, dim * element, inter * element, 2 * dim,
                   w1[0].size * element, w2[0].size * element, 4 * w1q[0].size if quant else 0, 4 * w2q[0].size if quant else 0, 4 * inter, TOPK,
                   total if row["ps"] == "1" else 0, pieces)
        launch.grid = (total, 1, 1) if row["ps"] == "1" else (pieces, len(experts), 1)
        if smooth == 1:
            launch.grid = launch.grid[1], launch.grid[0], 1
        want = np.zeros((TOKENS, dim))
        for t in range(TOKENS):
            for j in range(TOPK):
                e = ids[t, j]
                up_front = "tkw1" in name
                h = w1v[e] @ xv[j if smooth else 0, t] * (weights[t, j] if up_front else 1)
                act = (gelu if gelus else silu)(h[:inter]) * (h[inter:] if gated else 1) * smooth2[e]
                want[t] += (1 if up_front else weights[t, j]) * (w2v[e] @ act)
        more = REQUANTISED["fp8" if form == "block" else form] * (2 if smooth == 1 else 1) + (0.01 if gelus else 0.003)

        def check(results):
            mean, largest = al.rounding(want.size, 11 if half else 8, TOPK)
            return al.within(from16(results["out"]), want, mean + more, largest + 5 * more)

        return check

    return make


FORMS = {"pertokenFp8": "fp8", "pertokenInt8": "i8", "blockscaleFp8": "block", "noquant": "none"}


def cases(checkout, chip):
    for act in ("gelu", "silu"):
        folder = os.path.join(checkout, "hsa", chip, "fmoe", act)
        for name in sorted(os.listdir(folder)):
            form = re.match(r"fmoe_(?:bf16|fp16)_(pertokenFp8|pertokenInt8|blockscaleFp8|noquant)_g1u[01].*\.csv$", name)
            if form:
                for row in table(checkout, chip, f"fmoe/{act}/{name}"):
                    yield case(chip, row, fused(chip, row, FORMS[form.group(1)], row["co_name"]))
