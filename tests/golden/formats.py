"""Number formats and the safetensors container in plain numpy: bf16, OCP e4m3fn, MXFP4."""
import json
import struct

import numpy as np

FP8_MAX = np.float32(448.0)


def f32_to_bf16(x):
    """Round to nearest even; finite input."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def bf16_to_f32(x):
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _e4m3_magnitudes():
    code = np.arange(127)  # 127 is NaN
    exponent, mantissa = code >> 3, code & 7
    return np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))


E4M3 = _e4m3_magnitudes()
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def nearest_code(magnitude, grid):
    """Index of the nearest grid value, ties to the even code (which is the even mantissa), saturating."""
    middle = (grid[1:] + grid[:-1]) / 2
    low = np.searchsorted(middle, magnitude, side="left")  # a tie falls to the lower code ...
    tie = (low < len(middle)) & (middle[np.minimum(low, len(middle) - 1)] == magnitude)
    return low + (tie & (low % 2 == 1))  # ... and moves up if that is odd


def encode_e4m3(x):
    """The sign bit is kept even where the magnitude rounds to zero."""
    return (nearest_code(np.abs(x).astype(np.float64), E4M3) | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def decode_e4m3(code):
    value = np.append(E4M3, np.nan)[code & 0x7F].astype(np.float32)
    return np.where(code & 0x80, -value, value)


def _spread(scale, shape, block):
    """A grid of block scales as one value for each element; the last blocks may be ragged."""
    return np.repeat(np.repeat(scale, block[0], axis=0), block[1], axis=1)[: shape[0], : shape[1]]


def _fp8_scale(amax):
    return np.where(amax == 0, np.float32(1.0), amax.astype(np.float32) / FP8_MAX).astype(np.float32)


def fp8_block(w, block=128):
    rows, cols = (-(-n // block) for n in w.shape)
    amax = np.zeros((rows, cols), dtype=np.float32)
    for i in range(rows):
        for j in range(cols):
            amax[i, j] = np.abs(w[i * block:(i + 1) * block, j * block:(j + 1) * block]).max()
    scale = _fp8_scale(amax)
    return encode_e4m3(w / _spread(scale, w.shape, (block, block))), scale


def fp8_block_decode(q, scale, block=128):
    return decode_e4m3(q) * _spread(scale, q.shape, (block, block))


def fp8_channel(w):
    scale = _fp8_scale(np.abs(w).max(axis=1, keepdims=True))
    return encode_e4m3(w / scale), scale


def fp8_channel_decode(q, scale):
    return decode_e4m3(q) * scale


def mxfp4(w):
    """Blocks of 32 along K, e8m0 scales in mode "even": amax is rounded to a one-bit mantissa before its exponent is taken."""
    n, k = w.shape
    x = w.reshape(n, k // 32, 32)
    amax = np.ascontiguousarray(np.abs(x).max(axis=2), dtype=np.float32)
    rounded = (amax.view(np.uint32) + np.uint32(0x00200000)) >> np.uint32(23)  # biased exponent; the sign bit is 0
    scale = np.where(amax == 0, 0, np.clip(rounded.astype(np.int64) - 2, 0, 254)).astype(np.uint8)
    # fp64 so that dividing by the power of two is exact
    code = nearest_code(np.ldexp(np.abs(x).astype(np.float64), 127 - scale.astype(np.int32)[:, :, None]), E2M1)
    code = (code | np.where(np.signbit(x), 8, 0)).astype(np.uint8).reshape(n, k)
    return code[:, 0::2] | (code[:, 1::2] << 4), scale


def mxfp4_decode(packed, scale):
    n, half = packed.shape
    code = np.stack([packed & 15, packed >> 4], axis=2).reshape(n, half * 2)
    value = np.where(code & 8, -E2M1[code & 7], E2M1[code & 7])
    return np.ldexp(value, np.repeat(scale, 32, axis=1).astype(np.int32) - 127).astype(np.float32)


def write_safetensors(path, tensors, metadata=None):
    """tensors: {name: (dtype string, array of the raw values)}. Wide dtypes first, so that everything is aligned."""
    order = sorted(tensors, key=lambda n: (-tensors[n][1].itemsize, n))
    header, offset = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0
    shapes = {n: list(tensors[n][1].shape) for n in order}
    for name in order:
        dtype, array = tensors[name]
        header[name] = {"dtype": dtype, "shape": shapes[name], "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            f.write(np.ascontiguousarray(tensors[name][1]).tobytes())
