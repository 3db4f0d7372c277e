# SPDX-License-Identifier: MIT
"""How a kernel of ROCm/aiter is called on the virtual node: a launch file (mainarch-launch(5)), its operands in files, and its
results back as numpy arrays. aiter_products.py, aiter_moe.py and aiter_attention.py say which kernels, with what, and what must come out."""

import collections
import os
import re
import subprocess
import tempfile

import numpy as np

# One kernel with one set of operands. `make(launch)` fills in a launch and gives a function from results to what is wrong with them ("": nothing).
Case = collections.namedtuple("Case", "name object kernel make")

KINDS = {"ptr": 8, "u32": 4, "i32": 4, "f32": 4}


class Launch:
    """Lines of a launch file. Arguments of aiter's kernels lie 16 bytes apart, whatever their size."""

    def __init__(self, chip, path, kernel, folder):
        self.chip, self.path, self.kernel, self.folder = chip, path, kernel, folder
        self.lines, self.arguments, self.outputs, self.size = [], {}, {}, segment_bytes(path)
        self.grid, self.items = (1, 1, 1), 256

    def input(self, name, array, slack=0):
        """A buffer with that in it, and `slack` bytes of zeros behind: kernels read whole tiles, and what is behind the end counts nowhere."""
        array = np.ascontiguousarray(array)
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(array.tobytes() + bytes(slack))
        self.lines.append(f'buffer {name} {array.nbytes + slack} file="{path}"')

    def output(self, name, shape, dtype, zero=True):
        """A buffer that is read back; `zero`: cleared before, as the caller does where parts are added up."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        path = os.path.join(self.folder, name + ".out")
        self.lines += [f"buffer {name} {size}" + (" zero" if zero else ""), f'write {name} "{path}"']
        self.outputs[name] = path, shape, dtype

    def set(self, *values):
        """All arguments in order: a buffer's name, a whole number, a float, or None for nothing (0)."""
        for index, value in enumerate(values):
            self.at(16 * index, value)

    def at(self, offset, value):
        if value is None:
            return
        if isinstance(value, str):
            self.arguments[offset] = f"ptr {value}"
        elif isinstance(value, float):
            self.arguments[offset] = f"f32 {value!r}"
        else:
            self.arguments[offset] = f"u32 {value}"

    def text(self):
        size = max([self.size, *(offset + 16 for offset in self.arguments)])
        taken = {o for offset, line in self.arguments.items() for o in range(offset, offset + KINDS[line.split()[0]], 4)}
        rest = [f"arg {offset} u32 0" for offset in range(0, size, 4) if offset not in taken]
        return "\n".join(["mainarch-launch 1", f"isa {self.chip}", f'object "{self.path}"', f"kernel {self.kernel}",
                          "workgroups " + " ".join(map(str, self.grid)), f"workgroup {self.items}", f"kernarg {size}",
                          *self.lines, *(f"arg {offset} {line}" for offset, line in self.arguments.items()), *rest, ""])

    def results(self):
        return {name: np.fromfile(path, dtype).reshape(shape) for name, (path, shape, dtype) in self.outputs.items()}


def segment_bytes(path):
    """Size of the argument buffer that the object's metadata (MessagePack) declares."""
    with open(path, "rb") as file:
        found = re.search(rb"\.kernarg_segment_size(\xcd..|\xce....|[\x00-\x7f]|\xcc.)", file.read(), re.S)
    word = found.group(1) if found else b"\0"
    return int.from_bytes(word[1:], "big") if len(word) > 1 else word[0]


Outcome = collections.namedtuple("Outcome", "verdict text instructions seconds")


def run(options, chip, case, checkout, settings):
    """Runs a case: pass, fail (a wrong result), or refused (the node or a checker stopped it)."""
    with tempfile.TemporaryDirectory(prefix="mainarch-judge-") as folder:
        launch = Launch(chip, os.path.join(checkout, case.object), case.kernel, folder)
        try:
            compare = case.make(launch)
        except NotImplementedError as reason:
            return Outcome("skip", str(reason), 0, 0)
        path = os.path.join(folder, "launch")
        with open(path, "w") as file:
            file.write(launch.text())
        command = [*options.before.split(), options.mainarch, "time", "--launch", path, "--no-clock", "--device", f"sim:{chip},{settings}",
                   "--timeout", str(options.timeout)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        if done.returncode != 0:
            return Outcome("refused", text, 0, 0)
        wrong = compare(launch.results())
        return Outcome("fail" if wrong else "pass", f"{wrong}\n{text}", 0, 0)


# Numbers.


def to_bf16(x):
    """Codes, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32)


def fp8_values(chip):
    """Values of the 256 codes of e4m3: gfx942 has the FNUZ form, gfx950 OCP's."""
    codes = np.arange(256)
    exponent, mantissa, fnuz = codes >> 3 & 15, codes & 7, chip == "gfx942"
    bias = 8 if fnuz else 7
    value = np.where(exponent == 0, mantissa * 2.0 ** (1 - bias - 3), (8 + mantissa) * 2.0 ** (exponent - bias - 3.0))
    value = np.where(codes & 128, -value, value)
    return np.where(codes == 128 if fnuz else codes & 127 == 127, np.nan, value).astype(np.float32)


def fp8_largest(chip):
    return 240.0 if chip == "gfx942" else 448.0


def to_fp8(x, chip):
    """Codes of the nearest values, of even ones where two are as near."""
    values = fp8_values(chip)[: 128 if chip == "gfx942" else 127].astype(np.float64)
    middles = (values[1:] + values[:-1]) / 2
    size = np.abs(np.asarray(x, np.float64))
    code = np.searchsorted(middles, size, side="left")
    tie = (code < len(middles)) & (middles[np.minimum(code, len(middles) - 1)] == size) & (code % 2 == 1)
    code = np.where(tie, code + 1, code)
    return np.where((np.asarray(x) < 0) & (code != 0), code | 128, code).astype(np.uint8)


def quantised(x, form, chip):
    """Rows of x in 8 bits with one scale each: codes, their values, scales (rows, 1)."""
    largest = 127.0 if form == "i8" else fp8_largest(chip)
    scale = (np.abs(x).max(-1, keepdims=True) / largest).astype(np.float32)
    if form == "i8":
        codes = np.clip(np.rint(x / scale), -127, 127).astype(np.int8)
        return codes, codes.astype(np.float32), scale
    codes = to_fp8(np.clip(x / scale, -largest, largest), chip)
    return codes, fp8_values(chip)[codes], scale


def shuffled(w):
    """A weight [..., rows, k] in tiles of 16 rows by 32 bytes, each of two halves of 16 bytes (aiter's `shuffle_weight`, 16 x 16)."""
    wide = 16 // w.itemsize
    rows, k = w.shape[-2:]
    tiles = w.reshape(-1, rows // 16, 16, k // (2 * wide), 2, wide)
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 4, 2, 5)).reshape(w.shape)


def error(got, want):
    """Root mean square of the difference over that of what is wanted; infinite where a number is missing."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.isfinite(got).all():
        return np.inf
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


def within(got, want, mean, largest):
    """What is wrong with a result: its error beyond `mean`, or one element's beyond `largest`, both in units of the wanted root mean square."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    rms = float(np.sqrt((want**2).mean()))
    if not np.isfinite(got).all():
        return f"{int((~np.isfinite(got)).sum())} of {got.size} elements are no numbers"
    all_of_it, worst = error(got, want), float(np.abs(got - want).max()) / rms
    if all_of_it <= mean and worst <= largest:
        return ""
    return f"error {all_of_it:.2e} of the root mean square (bound {mean:.2e}), of one element {worst:.2e} (bound {largest:.2e})"


def rounding(count, bits, parts=1):
    """Bounds (mean, largest) of rounding normally distributed results once to `bits` bits of mantissa with the hidden one, by truncation,
    and for each further part that is added there. The largest of `count` normal numbers is about sqrt(2 ln(count)) root mean squares, and a
    unit in the last place of it is what truncation may take; of the mean error, one in sqrt(3) of the unit at the root mean square."""
    unit = 2.0 ** (1 - bits)
    largest = np.sqrt(2 * np.log(max(count, 3))) * 1.2
    return parts * unit * 0.75, parts * unit * largest
