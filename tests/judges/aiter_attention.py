# SPDX-License-Identifier: MIT
"""AMD's attention kernels, as cases of aiter_launch.py: flash attention forwards (csrc/cpp_itfs/mha_fwd.cu), paged attention (asm_pa.cu of
csrc/py_itfs_cu) and latent attention (asm_mla.cu) of one new token, on sequences that fill no tile."""

import numpy as np

import aiter_launch as al
from aiter_products import case, table, up

# Errors over the output's root mean square: probabilities are rounded to bf16 or fp8 before they meet V.
BF16, FP8 = 0.02, 0.08


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def flash(chip, row):
    """[batch, tokens, heads, width], two heads of Q to one of K; `mask` 2: causal; `mode` 1: batches of any length, by their starts."""

    def make(launch):
        rng = np.random.default_rng(7)
        wide, out_wide, rows = int(row["hdim_q"]), int(row["hdim_v"]), int(row["ts_qo"])
        fp8, causal, group = row["dtype"] == "fp8bf16", row["mask"] == "2", row["mode"] == "1"
        tokens, heads = rows + 40, 8
        q, k, v = (rng.standard_normal((tokens, h, w)) for h, w in ((heads, wide), (heads // 2, wide), (heads // 2, out_wide)))
        scales = np.array([0.5, 0.75, 1.25], np.float32)
        if fp8:
            codes = [al.to_fp8(x, chip) for x in (q, k, v)]
            q, k, v = (al.fp8_values(chip)[c].astype(np.float64) * s for c, s in zip(codes, scales))
        else:
            codes = [al.to_bf16(x) for x in (q, k, v)]
            q, k, v = (al.from_bf16(c).astype(np.float64) for c in codes)
        for name, c in zip("qkv", codes):
            launch.input(name, c, 1 << 16)
        for name, s in zip(("qs", "ks", "vs"), scales):
            launch.input(name, np.array([s]))
        launch.input("starts", np.array([0, tokens], np.int32))
        launch.output("o", (tokens, heads, out_wide), np.uint16, zero=False)
        launch.output("lse", (heads, tokens), np.float32)
        size = 1 if fp8 else 2
        tune = 0 if chip == "gfx942" and wide == 192 else 5
        line = [heads * wide * size, heads // 2 * wide * size, heads // 2 * out_wide * size, heads * out_wide * 2]
        starts = "starts" if group else None
        launch.set("o", "q", "k", "v", "lse", float(wide**-0.5), tokens, line[0], rows * line[0], wide * size, tokens * line[0], 2,
                   line[1], wide * size, tokens * line[1], tune, 0, tokens, wide, out_wide, heads, line[2], out_wide * size, tokens * line[2],
                   line[3], out_wide * 2, tokens * line[3], starts, starts, 4 * tokens, starts, starts,
                   *(("qs", "ks", "vs") if fp8 else (None,) * 3), *([0] * 6))
        launch.items = 256 if wide == 192 else 512
        halves = 2 if causal and not (chip == "gfx942" and wide == 192 and group) else 1
        tiles = up(up(tokens, rows), halves)
        launch.grid = (tiles, heads, 1)
        if chip == "gfx942" and wide == 192:
            launch.grid = (heads, up(tokens, rows), 1)
        if group:
            launch.grid = (heads, 1, tiles)
        want = np.zeros((tokens, heads, out_wide))
        for h in range(heads):
            scores = q[:, h] @ k[:, h // 2].T * wide**-0.5
            if causal:
                scores = np.where(np.arange(tokens)[None, :] > np.arange(tokens)[:, None], -np.inf, scores)
            want[:, h] = softmax(scores) @ v[:, h // 2]

        def check(results):
            bound = FP8 if fp8 else BF16
            return al.within(al.from_bf16(results["o"]), want, bound, 12 * bound)

        return check

    return make


def paged(chip, row):
    """One new token of each of two sequences; K and V in pages, whose order is shuffled; 8 bits with one scale for each token and head."""

    def make(launch):
        if row["Mtp"] != "0" or row["ps"] == "1":
            raise NotImplementedError("only kernels of one new token and of no standing workgroups are called here")
        rng = np.random.default_rng(8)
        per_page, group, wide, half = int(row["blkSz"]), int(row["Gqa"]), 128, row["qType"] == "fp16"
        kv_heads, lengths = 2, np.array([per_page + 5, 3 * per_page + 9], np.int32)
        pages = up(int(lengths.max()), per_page)
        blocks = 2 * pages
        tables = rng.permutation(blocks).reshape(2, pages).astype(np.int32)
        q = rng.standard_normal((2, kv_heads * group, wide))
        k, v = (rng.standard_normal((blocks, kv_heads, per_page, wide)) for _ in range(2))

        def to16(x):
            return np.asarray(x, np.float16).view(np.uint16) if half else al.to_bf16(x)

        def from16(codes):
            return codes.view(np.float16).astype(np.float64) if half else al.from_bf16(codes).astype(np.float64)

        form = {"fp8": "fp8", "int8": "i8"}.get(row["kvType"])
        if form:
            (kc, kv, ks), (vc, vv, vs) = (al.quantised(x, form, chip) for x in (k, v))
            k, v = kv.astype(np.float64) * ks, vv.astype(np.float64) * vs
            launch.input("ks", ks, 4096)
            launch.input("vs", vs, 4096)
        else:
            kc, vc = to16(k), to16(v)
            k, v = from16(kc), from16(vc)
        qc = to16(q)
        q = from16(qc)
        x = 16 // kc.itemsize
        launch.input("q", qc, 4096)
        launch.input("k", kc.reshape(blocks, kv_heads, per_page, wide // x, x).transpose(0, 1, 3, 2, 4), 1 << 16)
        launch.input("v", vc.reshape(blocks, kv_heads, per_page // x, x, wide).transpose(0, 1, 2, 4, 3), 1 << 16)
        launch.input("tables", tables, 4096)
        launch.input("lengths", lengths, 4096)
        launch.output("o", (2, kv_heads * group, wide), np.uint16, zero=False)
        head = per_page * wide * kc.itemsize
        launch.set("o", "q", "k", "v", "tables", "lengths", "ks" if form else None, "vs" if form else None, float(np.log2(np.e) / wide**0.5),
                   pages, kv_heads, kv_heads * group * wide * 2, kv_heads * head, head, 0, group, None)
        launch.grid = (kv_heads, 2, 1)
        want = np.zeros((2, kv_heads * group, wide))
        for s in range(2):
            for h in range(kv_heads * group):
                keys, values = (y[tables[s], h // group].reshape(-1, wide)[: lengths[s]] for y in (k, v))
                want[s, h] = softmax(q[s, h] @ keys.T * wide**-0.5) @ values

        def check(results):
            bound = FP8 if form else BF16
            return al.within(from16(results["o"]), want, bound, 12 * bound)

        return check

    return make


def latent(chip, row):
    """One new token of each of two sequences; K is 576 wide and the first 512 of it are V, the same for all heads; two pieces of each
    sequence, normalised each by itself, with the logarithm of their sums."""

    def make(launch):
        if row["ps"] == "1" or row["prefill"] == "1" or row["qSeqLen"] not in ("0", "1"):
            raise NotImplementedError("only kernels of one new token and of no standing workgroups are called here")
        rng = np.random.default_rng(9)
        heads, wide, out_wide, pieces = int(row["Gqa"]), 576, 512, 2
        lengths = np.array([75, 200], np.int32)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        pages = rng.permutation(int(starts[-1])).astype(np.int32)  # of one token
        q, kv = rng.standard_normal((2, heads, wide)), rng.standard_normal((int(starts[-1]), wide))
        scales = np.array([0.5, 1], np.float32)  # the second, of V too, one kernel leaves to its caller
        parts = []
        for x, kind, scale in ((q, row["qType"], scales[0]), (kv, row["kvType"], scales[1])):
            if kind == "fp8":
                codes = al.to_fp8(x, chip)
                parts.append((codes, al.fp8_values(chip)[codes].astype(np.float64) * scale))
            else:
                codes = al.to_bf16(x)
                parts.append((codes, al.from_bf16(codes).astype(np.float64)))
        (qc, q), (kc, kv) = parts
        launch.input("q", qc, 1 << 16)
        launch.input("kv", kc, 1 << 16)
        launch.input("starts", starts, 4096)
        launch.input("pages", pages, 4096)
        launch.input("last", np.ones(2, np.int32), 4096)
        launch.input("rows", np.arange(3, dtype=np.int32), 4096)
        launch.input("splits", np.arange(3, dtype=np.int32) * pieces, 4096)
        launch.input("qs", scales[:1], 4096)
        launch.input("ks", scales[1:], 4096)
        launch.output("r", (2, pieces, heads, out_wide), np.float32)
        launch.output("lse", (2, pieces, heads), np.float32)
        fp8 = row["kvType"] == "fp8"
        launch.set("r", "lse", "q", "kv", "starts", "pages", "last", float(wide**-0.5), heads, pieces, heads * wide * qc.itemsize,
                   wide * kc.itemsize, 0, "rows", "splits", None, "qs" if row["qType"] == "fp8" else None, "ks" if fp8 else None, 0, None,
                   None, 1, 0)
        launch.grid = (1, 2, pieces)
        want = np.zeros((2, heads, out_wide))
        for s in range(2):
            keys = kv[pages[starts[s] : starts[s + 1]]]
            want[s] = softmax(q[s] @ keys.T * wide**-0.5) @ keys[:, :out_wide]

        def check(results):
            r, lse = results["r"].astype(np.float64), results["lse"].astype(np.float64)
            share = np.exp(lse - lse.max(1, keepdims=True))
            got = (r * share[..., None]).sum(1) / share.sum(1)[..., None]
            bound = FP8 if fp8 else BF16
            return al.within(got, want, bound, 12 * bound)

        return check

    return make


def cases(checkout, chip):
    for row in table(checkout, chip, "fmha_v3_fwd/fmha_fwd.csv", ("MI300", "MI308") if chip == "gfx942" else ("",)):
        yield case(chip, row, flash(chip, row))
    for row in table(checkout, chip, "pa/pa_asm.csv"):
        yield case(chip, row, paged(chip, row))
    for row in table(checkout, chip, "mla/mla_asm.csv"):
        yield case(chip, row, latent(chip, row))
