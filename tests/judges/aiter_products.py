# SPDX-License-Identifier: MIT
"""AMD's matrix products and its top-k of softmax, as cases of aiter_launch.py: the smallest shape of two tiles along N, or one where a tile
is wide, that each kernel takes, with a partial tile of rows. The argument buffers are those of aiter's csrc/py_itfs_cu (asm_gemm_a16w16,
asm_a8w8_blockscale_bpreshuffle, asm_gemm_a8w8, asm_gemm_a4w4, asm_topksoftmax)."""

import csv
import os

import numpy as np

import aiter_launch as al
from aiter_launch import Case

K = 512  # what is summed over


def table(checkout, chip, path, folders=("",)):
    """Rows of a table of kernels whose objects lie beside it, or in folders of it; some name objects that are not there."""
    full = os.path.join(checkout, "hsa", chip, path)
    if not os.path.exists(full):
        return
    with open(full, newline="") as file:
        for row in csv.DictReader(file):
            for folder in folders:
                name = os.path.join("hsa", chip, os.path.dirname(path), folder, row["co_name"])
                if os.path.exists(os.path.join(checkout, name)):
                    yield {**row, "object": name}


def case(chip, row, make):
    name = os.path.relpath(row["object"], os.path.join("hsa", chip)).removesuffix(".co")
    return Case(name, row["object"], row["knl_name"], make)


def compared(want, bits, parts=1, more=0.0):
    """A check of the output `d`, in bf16 or f32, whose sums are rounded to `bits` `parts` times and are off by `more` before."""

    def check(results):
        got = results["d"]
        got = al.from_bf16(got) if got.dtype == np.uint16 else got
        mean, largest = al.rounding(want.size, bits, parts)
        return al.within(got, want, mean + more, largest + 5 * more)

    return check


def up(x, y):
    return -(-x // y)


def bf16(row):
    """bf16 x bf16, to bf16, or f32 where K is shared: parts are added there one after another, in turns that a counter gives."""

    def make(launch):
        rng = np.random.default_rng(1)
        m, n = int(row["tileM"]) + 16, int(row["tileN"])
        split = 2 if row["splitK"] == "1" else 1
        k = K * split
        wide = "fp32bf16" in row["knl_name"]
        a, b = (al.to_bf16(rng.standard_normal(shape)) for shape in ((m, k), (n, k)))
        bias = al.to_bf16(rng.standard_normal(n))
        launch.input("a", a)
        launch.input("b", al.shuffled(b) if row["bPreshuffle"] == "1" else b)
        launch.input("bias", bias)
        launch.input("counters", np.zeros(1024, np.uint32))
        launch.output("d", (m, n), np.float32 if wide else np.uint16)
        size = 4 if wide else 2
        with_bias = row["bias"] == "1"
        launch.set("d", None, "a", "b", 1.0, 0.0, n * size, 0, n * size, 0, 2 * k, 0, 2 * k, 0, m, n, k, split, 0 if wide else 1,
                   "bias" if with_bias else None, 1 if with_bias else 0, "counters" if split > 1 else None)
        launch.grid = up(n, int(row["tileN"])), up(m, int(row["tileM"])), split
        want = al.from_bf16(a).astype(np.float64) @ al.from_bf16(b).astype(np.float64).T + (al.from_bf16(bias) if with_bias else 0)
        return compared(want, 18 if wide else 8)

    return make


def fp8_block(chip, row):
    """fp8 with a scale for each 128 of K of a row of A, and each 128 x 128 of B."""

    def make(launch):
        rng = np.random.default_rng(2)
        m, n, k = int(row["tile_m"]) + 16, 2 * int(row["tile_n"]), K
        a, b = (al.to_fp8(rng.standard_normal(shape), chip) for shape in ((m, k), (n, k)))
        sa = rng.uniform(0.5, 1, (m, k // 128)).astype(np.float32)
        sb = rng.uniform(0.5, 1, (n // 128, k // 128)).astype(np.float32)
        launch.input("a", a, 256 * k)
        launch.input("b", al.shuffled(b))
        launch.input("sa", sa.T, 4096)
        launch.input("sb", sb)
        launch.input("bias", np.zeros(n, np.float32))
        launch.output("d", (m, n), np.uint16)
        launch.set("d", "a", "b", "sa", "sb", "bias", m, n, k, k, k, 2 * n, 1, m, n // 128, k // 128)
        launch.grid = n // int(row["tile_n"]), up(m, int(row["tile_m"])), 1
        values = al.fp8_values(chip).astype(np.float64)
        want = (values[a] * sa.repeat(128, 1)) @ (values[b] * sb.repeat(128, 0).repeat(128, 1)).T
        return compared(want, 8)

    return make


def i8(row):
    """i8 with a scale for each row of A and of B."""

    def make(launch):
        rng = np.random.default_rng(3)
        m, n, k = int(row["tile_m"]) + 16, 2 * int(row["tile_n"]), K
        a, b = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((m, k), (n, k)))
        sa, sb = (rng.uniform(0.5, 1, count).astype(np.float32) for count in (m, n))
        bias = rng.standard_normal(n).astype(np.float32)
        launch.input("a", a, 256 * k)
        launch.input("b", al.shuffled(b))
        launch.input("sa", sa, 4096)
        launch.input("sb", sb, 4096)
        launch.input("bias", bias, 4096)
        launch.output("d", (m, n), np.uint16)
        launch.set("d", "a", "b", "sa", "sb", "bias", m, n, k, k, k, 2 * n, 1)
        launch.grid = n // int(row["tile_n"]), up(m, int(row["tile_m"])), 1
        want = (a.astype(np.float64) @ b.astype(np.float64).T) * sa[:, None] * sb + bias
        return compared(want, 8)

    return make


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mx_scales(codes):
    """Scale bytes [rows, blocks], in tiles of 32 rows by 8 blocks."""
    rows, blocks = codes.shape
    tiles = codes.reshape(rows // 32, 2, 16, blocks // 8, 2, 4)
    return tiles.transpose(0, 3, 5, 2, 4, 1)


def mxfp4(row):
    """MXFP4 x MXFP4: 4 bits, a scale of a power of two for each 32 of K."""

    def make(launch):
        rng = np.random.default_rng(4)
        m, n, k = int(row["tile_M"]), int(row["tile_N"]), K
        rows, columns = up(m, 256) * 256, up(n, 256) * 256
        a, b = (rng.integers(0, 256, (r, k // 2)).astype(np.uint8) for r in (m, n))
        sa, sb = (rng.integers(125, 130, (r, k // 32)).astype(np.uint8) for r in (rows, columns))
        launch.input("a", a)
        launch.input("b", al.shuffled(b) if row["bpreshuffle"] == "1" else b)
        launch.input("sa", mx_scales(sa))
        launch.input("sb", mx_scales(sb))
        launch.output("d", (up(m, 32) * 32, n), np.uint16)
        launch.set("d", None, "a", "b", 1.0, 0.0, None, None, n, None, k, None, k, None, m, n, k, "sa", "sb", k // 32, None, k // 32, None, 0)
        launch.grid = up(n, int(row["tile_N"])), up(m, int(row["tile_M"])), 1

        def values(codes, scales):
            plain = np.stack([FP4[codes & 15], FP4[codes >> 4]], -1).reshape(codes.shape[0], -1)
            return plain * (2.0 ** (scales[: codes.shape[0]] - 127.0)).repeat(32, 1)

        want = np.zeros((up(m, 32) * 32, n))
        want[:m] = values(a, sa) @ values(b, sb).T
        return compared(want, 8)

    return make


def topk_softmax(row):
    """The `topk` largest of a softmax over experts, with their numbers, largest first, divided by their sum or not."""

    def make(launch):
        rng = np.random.default_rng(5)
        tokens, experts, topk = 3 * int(row["subm"]) + 1, int(row["num_experts"]), int(row["topk"])
        # All different, so that there is one answer.
        x = rng.permuted(np.tile(np.linspace(-4, 4, experts), (tokens, 1)), axis=1)
        x = x.astype(np.float32) if row["dtype"] == "fp32" else al.from_bf16(al.to_bf16(x))
        launch.input("x", x if row["dtype"] == "fp32" else al.to_bf16(x), 4096)
        launch.output("index", (tokens, topk), np.int32, zero=False)
        launch.output("weight", (tokens, topk), np.float32, zero=False)
        launch.set("index", "weight", "x", tokens, experts, topk, 1, 4 * topk)
        launch.grid = up(tokens, int(row["subm"])), 1, 1
        soft = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        order = np.argsort(-soft, -1, kind="stable")[:, :topk]
        want = np.take_along_axis(soft, order, -1)
        want /= want.sum(-1, keepdims=True)

        def check(results):
            wrong = int((results["index"] != order).sum())
            if wrong:
                return f"{wrong} of {order.size} experts are others than the largest"
            return al.within(results["weight"], want, 1e-5, 1e-4)

        return check

    return make


def cases(checkout, chip):
    for row in table(checkout, chip, "bf16gemm/bf16gemm_fp32bf16.csv"):
        yield case(chip, row, bf16(row))
    for row in table(checkout, chip, "fp8gemm_blockscale/fp8gemm_bf16_blockscale.csv"):
        yield case(chip, row, fp8_block(chip, row))
    for row in table(checkout, chip, "i8gemm/i8gemm_bf16_perTokenI8.csv"):
        yield case(chip, row, i8(row))
    for row in table(checkout, chip, "f4gemm/f4gemm_bf16_per1x32Fp4.csv"):
        yield case(chip, row, mxfp4(row))
    for name in sorted(os.listdir(os.path.join(checkout, "hsa", chip, "topksoftmax"))):
        if name.endswith(".csv"):
            for row in table(checkout, chip, "topksoftmax/" + name):
                yield case(chip, row, topk_softmax(row))
