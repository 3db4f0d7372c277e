#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the modelled time of AMD's own compiled kernels against the microseconds that AMD measured.

usage: aiter.py --aiter DIR --table CSV --objects CSV [--mainarch PROGRAM] [--rows N] [--seed S] ...

ROCm/aiter has some thousand compiled matrix products for gfx942 and gfx950, and tables of what its
tuner measured with them on MI300X, MI308X and MI355X. Nothing of either is in this repository: DIR is
a checkout; CSV are extracts of its tables (gfx,cus,format,M,N,K,splitK,kernel,us,file and
gfx,knl_name,co). A row becomes a launch file (mainarch-launch(5)): the argument buffer of its family,
operands in the layout that the kernel wants, the grid that its launcher would make.

What the tuner measures is the device's own time of a call, from a profiler: the kernel's, and that of
the fill that clears the output where K is split; 100 calls, whose operands take turns among copies so
that caches do not hold them, but for shapes so small that all copies fit the MALL.

Operands are random bytes that SplitMix64 makes, here and in mainarch alike: results of shapes below
--check-work are compared with numpy's.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
# From a dispatch to its first instruction: first_wave_ns of the model.
FIRST_WAVE_US = 0.3
# Copies of all of a call's tensors, made before the loop that is timed and used once each; and what they may fit.
TUNER_COPIES, MALL_BYTES = 101, 256 << 20
# Settings of the virtual node, and figures of the model, for cards by their compute units. MI308X runs at 1420 MHz.
CHIPS = {"80": (4, 20), "304": (8, 38), "256": (8, 32)}  # XCDs and compute units of one, by compute units
CARDS = {"80": (["card=mi308x"], ["clock_mhz=1420"])}


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


try:
    import numpy as np
except ImportError:
    skip("numpy is not installed")


# Random bytes, as mainarch-launch(5) makes them.
def mixed(seed, count):
    with np.errstate(over="ignore"):
        z = np.arange(count, dtype=np.uint64) + np.uint64((seed << 32) + 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)


def random_reals(seed, count, low, high):
    return low + (mixed(seed, count) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53 * (high - low)


def random_integers(seed, count, low, high):
    return low + (mixed(seed, count) % np.uint64(high - low + 1)).astype(np.int64)


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32)


def random_bf16(seed, count):
    return from_bf16(to_bf16(random_reals(seed, count, -1, 1).astype(np.float32)))


def fp8_values(fnuz):
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    bias = 8 if fnuz else 7
    value = np.where(exponent == 0, mantissa * 2.0 ** (1 - bias - 3), (8 + mantissa) * 2.0 ** (exponent - bias - 3.0))
    return np.where(codes & 128, -value, value).astype(np.float32)


def random_fp8(seed, count, fnuz):
    x = mixed(seed, count)
    magnitude = x >> np.uint64(8)
    magnitude = magnitude % np.uint64(0x39)
    codes = np.where(magnitude == 0, np.uint64(0), magnitude | x & np.uint64(0x80)).astype(np.uint8)
    return fp8_values(fnuz)[codes]


FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def random_fp4(seed, count_bytes):
    codes = random_integers(seed, count_bytes, 0, 255).astype(np.uint8)
    return np.stack([FP4[codes & 15], FP4[codes >> 4]], -1).reshape(-1)


def unshuffled(flat, n, k_bytes, per_byte=1, element_bytes=1):
    """Rows of a weight that lies in tiles of 16 rows by 16 bytes, two of them in a row along K."""
    k = 16 // element_bytes
    tiles = flat.reshape(n // 16, k_bytes // (32), 2, 16, k * per_byte)
    return tiles.transpose(0, 3, 1, 2, 4).reshape(n, -1)


class Launch:
    """Lines of a launch file."""

    def __init__(self, objects, row):
        self.row, self.arguments, self.buffers, self.names = row, {}, [], {}
        self.bytes = self.input_bytes = 0
        self.object = objects[row["gfx"], row["kernel"]]

    def buffer(self, name, size, fill="", is_input=True):
        self.buffers.append(f"buffer {name} {size} {fill}".rstrip())
        self.bytes += size
        self.input_bytes += size if is_input else 0

    def words(self, size):
        self.size = size

    def pointer(self, offset, name):
        self.arguments[offset] = f"arg {offset} ptr {name}"

    def number(self, offset, kind, value):
        self.arguments[offset] = f"arg {offset} {kind} {value}"

    def text(self, checkout, groups, runs, rotate, output):
        lines = ["mainarch-launch 1", f"isa {self.row['gfx']}", f"object \"{checkout / self.object}\"",
                 f"kernel {self.row['kernel']}", "workgroups " + " ".join(map(str, groups)), "workgroup 256",
                 f"kernarg {self.size}", "arguments device", f"runs {runs}", f"rotate {rotate}", *self.buffers]
        taken = set()
        for offset, line in self.arguments.items():
            size = {"ptr": 8, "u32": 4, "f32": 4}[line.split()[2]]
            taken.update(range(offset, offset + size, 4))
            lines.append(line)
        # What is between arguments counts as an argument in the metadata, too.
        lines += [f"arg {offset} u32 0" for offset in range(0, self.size, 4) if offset not in taken]
        if output:
            lines.append(f"write {output[0]} \"{output[1]}\"")
        return "\n".join(lines) + "\n"


def tile_of(kernel):
    for word in kernel.removesuffix("E").split("_"):
        m, _, n = word.partition("x")
        if m.isdigit() and n.isdigit():
            return int(m), int(n)
    raise ValueError(f"no tile in {kernel}")


def up(x, y):
    return -(-x // y)


class Product:
    """D[M, N] = A[M, K] B[N, K]^T; a family fills in the rest."""

    def __init__(self, row, extra):
        self.row, self.extra = row, extra
        self.m, self.n, self.k, self.split = (int(row[key]) for key in ("M", "N", "K", "splitK"))
        self.tile = tile_of(row["kernel"])
        self.clears = False  # the output is cleared first, by another kernel
        self.roundings = 1  # of an output element to its 16 bits: one more for every part that is added there

    def work(self):
        """With the rows that fill up tiles."""
        return 2 * up(self.m, self.tile[0]) * self.tile[0] * self.n * self.k

    def refused(self):
        return None

    def wanted(self):
        a, b = self.operands()
        return a @ b.T


class Bf16(Product):
    def launch(self, launch, filled):
        m, n, k = self.m, self.n, self.k
        wide = self.extra.get("outdtype", "torch.bfloat16") == "torch.float32"
        self.out_bytes = 4 if wide else 2
        split = max(self.split, 1)
        self.roundings = 1 if wide else split  # parts are added in the output
        launch.words(352)
        launch.buffer("d", m * n * self.out_bytes, "zero" if filled else "", False)
        launch.buffer("a", m * k * 2, "random=bf16 seed=1" if filled else "")
        launch.buffer("b", n * k * 2, "random=bf16 seed=2" if filled else "")
        launch.pointer(0, "d")
        launch.pointer(32, "a")
        launch.pointer(48, "b")
        launch.number(64, "f32", 1)
        for offset, value in ((96, n * self.out_bytes), (128, n * self.out_bytes), (160, k * 2), (192, k * 2),
                              (224, m), (240, n), (256, k), (272, split), (288, 0 if wide else 1)):
            launch.number(offset, "u32", value)
        if self.extra.get("bias") == "True":
            launch.buffer("bias", n * self.out_bytes, "zero")
            launch.pointer(304, "bias")
            launch.number(320, "u32", 1)
        if split > 1:
            launch.buffer("semaphore", 16 * 64 * 4, "zero", False)
            launch.pointer(336, "semaphore")
        return up(n, self.tile[1]), up(m, self.tile[0]), split

    def refused(self):
        return None if self.n % self.tile[1] == 0 else f"N = {self.n} is no multiple of {self.tile[1]}"

    def operands(self):
        return (random_bf16(1, self.m * self.k).reshape(self.m, self.k),
                random_bf16(2, self.n * self.k).reshape(self.n, self.k))


class Fp8Block(Product):
    def launch(self, launch, filled):
        m, n, k = self.m, self.n, self.k
        self.out_bytes, self.clears, self.roundings = 2, self.split > 1, max(self.split, 1)
        launch.words(256)
        launch.buffer("c", m * n * 2, "zero" if filled else "", False)
        launch.buffer("a", m * k, "random=fp8 seed=1" if filled else "")
        launch.buffer("b", n * k, "random=fp8 seed=2" if filled else "")
        launch.buffer("sa", m * up(k, 128) * 4, "random=f32 seed=3 low=0.5 high=1" if filled else "")
        launch.buffer("sb", up(n, 128) * up(k, 128) * 4, "random=f32 seed=4 low=0.5 high=1" if filled else "")
        launch.buffer("bias", n * 4, "zero", False)
        for i, name in enumerate(("c", "a", "b", "sa", "sb", "bias")):
            launch.pointer(16 * i, name)
        for i, value in enumerate((m, n, k, k, k, n * 2, max(self.split, 1), m, up(n, 128), up(k, 128))):
            launch.number(96 + 16 * i, "u32", value)
        return n // self.tile[1] * max(self.split, 1), up(m, self.tile[0]), 1

    def operands(self):
        fnuz = self.row["gfx"] == "gfx942"
        m, n, k = self.m, self.n, self.k
        a = random_fp8(1, m * k, fnuz).reshape(m, k)
        b = unshuffled(random_fp8(2, n * k, fnuz), n, k)
        sa = random_reals(3, m * (k // 128), .5, 1).astype(np.float32).reshape(k // 128, m).T
        sb = random_reals(4, n // 128 * (k // 128), .5, 1).astype(np.float32).reshape(n // 128, k // 128)
        return a * sa.repeat(128, 1), b * sb.repeat(128, 0).repeat(128, 1)


class I8Channel(Product):
    def launch(self, launch, filled):
        m, n, k = self.m, self.n, self.k
        self.out_bytes, self.clears, self.roundings = 2, self.split > 1, max(self.split, 1)
        stride = k + 128  # the tuner's rows of A are so far apart
        launch.words(256)
        launch.buffer("c", m * n * 2, "zero" if filled else "", False)
        launch.buffer("a", m * stride, "random=i8 seed=1" if filled else "")
        launch.buffer("b", n * k, "random=i8 seed=2" if filled else "")
        launch.buffer("sa", m * 4, "random=f32 seed=3 low=0.5 high=1" if filled else "")
        launch.buffer("sb", n * 4, "random=f32 seed=4 low=0.5 high=1" if filled else "")
        launch.buffer("bias", n * 4, "zero")
        for i, name in enumerate(("c", "a", "b", "sa", "sb", "bias")):
            launch.pointer(16 * i, name)
        for i, value in enumerate((m, n, k, stride, k, n * 2, max(self.split, 1))):
            launch.number(96 + 16 * i, "u32", value)
        return n // self.tile[1] * max(self.split, 1), up(m, self.tile[0]), 1

    def operands(self):
        m, n, k = self.m, self.n, self.k
        a = random_integers(1, m * (k + 128), -128, 127).reshape(m, k + 128)[:, :k].astype(np.float32)
        b = unshuffled(random_integers(2, n * k, -128, 127).astype(np.float32), n, k)
        sa = random_reals(3, m, .5, 1).astype(np.float32)[:, None]
        sb = random_reals(4, n, .5, 1).astype(np.float32)[:, None]
        return a * sa, b * sb


class Fp4(Product):
    def launch(self, launch, filled):
        m, n, k = self.m, self.n, self.k
        self.out_bytes = 2
        rows = up(m, 256) * 256
        self.scale_stride = up(up(k, 32), 8) * 8
        self.scale_rows = rows, up(n, 256) * 256
        self.clears, self.roundings = self.split > 0, 1 << self.split
        launch.words(384)
        launch.buffer("d", up(m, 32) * 32 * n * 2, "zero" if filled or self.clears else "", False)
        launch.buffer("a", m * k // 2, "random=u8 seed=1" if filled else "")
        launch.buffer("b", n * k // 2, "random=u8 seed=2" if filled else "")
        # Scales of 1/4 to 4; a NaN among them (0xff) would not slow anything down either.
        scale = "random=u8 seed={} low=125 high=129"
        launch.buffer("sa", self.scale_rows[0] * self.scale_stride, scale.format(3) if filled else "")
        launch.buffer("sb", self.scale_rows[1] * self.scale_stride, scale.format(4) if filled else "")
        for offset, name in ((0, "d"), (32, "a"), (48, "b"), (272, "sa"), (288, "sb")):
            launch.pointer(offset, name)
        launch.number(64, "f32", 1)
        for offset, value in ((128, n), (160, k), (192, k), (224, m), (240, n), (256, k), (304, self.scale_stride),
                              (336, self.scale_stride), (368, self.split)):
            launch.number(offset, "u32", value)
        groups = 1
        if self.split:
            groups = up(k, up(up(k, 1 << self.split), 256) * 256)
        return up(n, self.tile[1]), up(m, self.tile[0]), groups

    def scales(self, seed, rows, padded):
        codes = random_integers(seed, padded * self.scale_stride, 125, 129)
        tiles = codes.reshape(padded // 32, self.scale_stride // 8, 4, 16, 2, 2)
        plain = tiles.transpose(0, 5, 3, 1, 4, 2).reshape(padded, self.scale_stride)
        return 2.0 ** (plain[:rows, :up(self.k, 32)] - 127.0)

    def operands(self):
        m, n, k = self.m, self.n, self.k
        a = random_fp4(1, m * k // 2).reshape(m, k)
        b = unshuffled(random_fp4(2, n * k // 2), n, k // 2, per_byte=2)
        return ((a * self.scales(3, m, self.scale_rows[0]).repeat(32, 1)).astype(np.float32),
                (b * self.scales(4, n, self.scale_rows[1]).repeat(32, 1)).astype(np.float32))


def family_of(kernel):
    for part, family in (("bf16gemm_", Bf16), ("fp8gemm_bf16_blockscale", Fp8Block), ("I8gemm_", I8Channel),
                         ("f4gemm_", Fp4)):
        if part in kernel:
            return family
    return None


# Beside mainarch: what a row of the tuner's own table says that the extract does not.
def extras_of(checkout, file, cache={}):
    if file not in cache:
        found = list((checkout / "aiter/configs").rglob(file)) if (checkout / "aiter").is_dir() else []
        rows = {}
        for path in found[:1]:
            for row in csv.DictReader(path.open()):
                rows[tuple(row.get(key, "") for key in ("cu_num", "M", "N", "K", "kernelName"))] = row
        cache[file] = rows
    return cache[file]


Result = collections.namedtuple("Result", "row product seconds report note check")


def run_launch(options, row, text, results=True, in_mall=False):
    """The report of a launch file, or what went wrong; and this machine's seconds."""
    card, params = CARDS.get(row["cus"], ([], []))
    if in_mall:
        params = [*params, "mall_share=1"]
    node = ",".join([row["gfx"], *card, *options.node])
    with tempfile.NamedTemporaryFile("w", suffix=".launch", prefix="mainarch-aiter-") as file:
        file.write(text)
        file.flush()
        command = [options.mainarch, "time", "--launch", file.name, "--device", f"sim:{node}", "--json", "--waits", "0",
                   "--timeout", str(options.timeout)]
        command += ["--no-clock"] if not options.clock else [] if results else ["--no-results"]
        for param in [*params, *options.param] if options.clock else []:
            command += ["--param", param]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        return None, f"exit code {done.returncode}: {done.stderr[-300:]}", seconds
    if "error" in report:
        return None, report["error"]["message"], seconds
    return report, "", seconds


def device_us(report):
    """What a profiler reads off the GPU's clock: from where waves are dealt out, behind the packet and its acquire, to
    the end, its release with it. Of the last run."""
    launches = report.get("launches")
    if not launches:
        return None
    last = launches[-1]
    return last["end_us"] - last["first_wave_us"] + FIRST_WAVE_US


def clearing_us(options, row, size, cache={}):
    """What a fill of the output takes: our own kernel's modelled time."""
    size = -(-size // 4096) * 4096
    key = row["gfx"], row["cus"], size
    if key not in cache:
        groups = max(1, min(size // 4096, 2048))
        text = "\n".join(["mainarch-launch 1", f"object \"{options.kernels.resolve()}/memory.{row['gfx']}.hsaco\"",
                          "kernel fill", f"workgroups {groups}", "workgroup 256", "arguments device", f"buffer d {size}", "arg 0 ptr d",
                          f"arg 8 u64 {size}", "arg 16 u64 0", "arg 24 u64 0", f"arg 32 u32 {groups}", "arg 36 u32 0", "runs 2", "rotate 2", ""])
        report, note, _ = run_launch(options, row, text)
        if report is None:
            raise RuntimeError(f"the fill of an output failed: {note}")
        cache[key] = device_us(report) or 0
    return cache[key]


def check(product, path, out_bytes):
    """The largest error over the root mean square of what is wanted."""
    raw = np.fromfile(path, np.uint16 if out_bytes == 2 else np.float32)
    got = from_bf16(raw) if out_bytes == 2 else raw
    got = got[:product.m * product.n].reshape(product.m, product.n).astype(np.float64)
    want = product.wanted().astype(np.float64)
    return float(np.abs(got - want).max() / math.sqrt((want ** 2).mean()))


def bound_of(options, product):
    """What of `check` is still rounding: --bound is for 10^5 elements, of which the largest, of n normal numbers, grows by sqrt(2 ln n)."""
    elements = max(product.m * product.n, 2)
    return options.bound * product.roundings * math.sqrt(math.log(elements) / math.log(1e5))


def runs_of(row, grid):
    """So many that every compute unit has run the code before the last one: a run goes on where the one before ended."""
    xcds, units = CHIPS[row["cus"]]
    return 1 + up(units, max(1, math.prod(grid) // xcds))


def run_row(options, objects, row):
    extra = extras_of(options.aiter, row["file"]).get(tuple(row[key] for key in ("cus", "M", "N", "K", "kernel")), {})
    product = family_of(row["kernel"])(row, extra)
    if reason := product.refused():
        return Result(row, product, 0, None, reason, None)
    checked = product.work() <= options.check_work
    launch = Launch(objects, row)
    grid = product.launch(launch, checked)
    with tempfile.TemporaryDirectory(prefix="mainarch-aiter-") as folder:
        out = pathlib.Path(folder, "out.bin")
        output = (launch.buffers[0].split()[1], out) if checked else None
        runs = options.runs or runs_of(row, grid)
        text = launch.text(options.aiter.resolve(), grid, runs, runs, output)
        report, note, seconds = run_launch(options, row, text, checked, TUNER_COPIES * launch.bytes <= MALL_BYTES)
        if report is None:
            return Result(row, product, seconds, None, note, None)
        if product.clears and options.clock:
            report["clearing_us"] = clearing_us(options, row, product.m * product.n * product.out_bytes)
        return Result(row, product, seconds, report, "", check(product, out, product.out_bytes) if checked else None)


def rank_correlation(pairs):
    def ranks(values):
        order = sorted(range(len(values)), key=lambda i: values[i])
        out = [0.0] * len(values)
        at = 0
        while at < len(order):
            end = at
            while end < len(order) and values[order[end]] == values[order[at]]:
                end += 1
            for i in order[at:end]:
                out[i] = (at + end - 1) / 2
            at = end
        return out

    if len(pairs) < 3:
        return math.nan
    a, b = ranks([p[0] for p in pairs]), ranks([p[1] for p in pairs])
    return statistics.correlation(a, b)


def summary(results):
    groups = collections.defaultdict(list)
    for result in results:
        if result.report and (us := modelled(result)):
            pair = (float(result.row["us"]), us)
            for key in ((result.row["gfx"], result.row["format"]), (result.row["gfx"], "all"), ("both", "all")):
                groups[key].append(pair)
    print(f"\n{'chip':8} {'family':16} {'rows':>5} {'bias %':>8} {'median %':>9} {'p90 %':>8} {'rank':>6}")
    for key in sorted(groups):
        errors = sorted(abs(b / a - 1) * 100 for a, b in groups[key])
        bias = statistics.median(b / a - 1 for a, b in groups[key]) * 100
        p90 = errors[min(len(errors) - 1, math.ceil(.9 * len(errors)) - 1)]
        print(f"{key[0]:8} {key[1]:16} {len(errors):5} {bias:8.1f} {statistics.median(errors):9.1f} {p90:8.1f} "
              f"{rank_correlation(groups[key]):6.3f}")


def modelled(result):
    """What the profiler would have said: the call's kernels, each from its dispatch to its end."""
    us = device_us(result.report or {})
    return us and us + result.report.get("clearing_us", 0)


def line(result):
    row = result.row
    us = modelled(result)
    cells = [f"{row['gfx']}/{row['cus']}", f"{row['format']:16}", f"{row['M']:>6}", f"{row['N']:>6}", f"{row['K']:>6}",
             f"{row['splitK']:>3}", f"{float(row['us']):9.2f}", f"{us:9.2f}" if us else f"{'-':>9}",
             f"{us / float(row['us']):6.2f}" if us else f"{'-':>6}",
             "   -   " if result.check is None else f"{result.check:7.1e}", f"{result.seconds:7.1f}",
             row["kernel"].removeprefix("_ZN5aiter").removesuffix("E").lstrip("0123456789"), result.note]
    return " ".join(cells)


def chosen(options, objects, rows):
    rows = [row for row in rows if (not options.gfx or row["gfx"] == options.gfx)
            and (not options.family or row["format"].startswith(options.family))
            and int(row["M"]) >= options.least_m
            and (not options.cus or row["cus"] in options.cus.split(","))]
    unknown = [row for row in rows if (row["gfx"], row["kernel"]) not in objects or not family_of(row["kernel"])]
    rows = [row for row in rows if row not in unknown]
    random.Random(options.seed).shuffle(rows)
    rows = rows[:options.rows]
    large = [row for row in rows if family_of(row["kernel"])(row, {}).work() > options.most_work]
    print(f"{len(rows)} rows by seed {options.seed}; {len(large)} of them not run, being above "
          f"{options.most_work / 1e9:g} GFLOP; {len(unknown)} rows of the table name a kernel that is not known here")
    return [row for row in rows if row not in large]


def main():
    parser = argparse.ArgumentParser(description="Modelled against measured time of ROCm/aiter's kernels.")
    parser.add_argument("--aiter", type=pathlib.Path, default=os.environ.get("MAINARCH_AITER"), help="a checkout")
    parser.add_argument("--table", type=pathlib.Path, help="measured rows")
    parser.add_argument("--objects", type=pathlib.Path, help="code objects by kernel")
    parser.add_argument("--mainarch", default="build/src/cli/mainarch")
    parser.add_argument("--node", action="append", default=[], help="settings of the virtual node, such as seed=2")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gfx", default="")
    parser.add_argument("--cus", default="", help="only rows of chips with so many compute units")
    parser.add_argument("--family", default="", help="the beginning of a format")
    parser.add_argument("--least-m", type=int, default=1, help="only rows of so many rows of A and more")
    parser.add_argument("--most-work", type=float, default=2e11, help="flop; what is larger is not run, and counted")
    parser.add_argument("--check-work", type=float, default=2e9, help="flop; what is smaller is compared with numpy")
    parser.add_argument("--bound", type=float, default=3.5e-2,
                        help="error over root mean square, for each rounding of 10^5 elements of output, that is wrong")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", type=int, default=0,
                        help="each with operands of its own; the last counts; 0: until the code is warm everywhere")
    parser.add_argument("--kernels", type=pathlib.Path, default=pathlib.Path("build/kernels"), help="our code objects")
    parser.add_argument("--param", action="append", default=[], help="NAME=NUMBER of the timing model")
    parser.add_argument("--no-clock", dest="clock", action="store_false", help="results only")
    parser.add_argument("--json", type=pathlib.Path, help="every row with its report is added there, one a line")
    options = parser.parse_args()
    if not options.aiter or not options.aiter.is_dir():
        skip("no checkout of ROCm/aiter: give --aiter DIR")
    if not options.table or not options.table.exists() or not options.objects or not options.objects.exists():
        skip("no table of measurements: give --table and --objects")
    objects = {(row["gfx"], row["knl_name"]): row["co"] for row in csv.DictReader(options.objects.open())}
    rows = chosen(options, objects, list(csv.DictReader(options.table.open())))
    print("measured: AMD's tuner, microseconds; modelled: this library's virtual node")
    print("chip     family                M      N      K spl  measured  modelled  ratio  error   host s kernel")
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda row: run_row(options, objects, row), rows):
            results.append(result)
            print(line(result), flush=True)
            if options.json:
                with options.json.open("a") as out:
                    out.write(json.dumps({"row": result.row, "report": result.report, "note": result.note,
                                          "check": result.check, "modelled": modelled(result)}) + "\n")
    summary(results)
    wrong = [r for r in results if r.check is not None and not r.check <= bound_of(options, r.product)]
    failed = [r for r in results if r.report is None]
    checked = sum(r.check is not None for r in results)
    print(f"\n{len(results)} rows run, {checked} results compared, {len(wrong)} wrong, {len(failed)} failed")
    sys.exit(1 if wrong or failed else 0)


if __name__ == "__main__":
    main()
