# SPDX-License-Identifier: MIT
"""data/gguf/blocks.safetensors: random blocks of every GGUF format, and what the `gguf` package says they are.

  python3 -m venv venv && venv/bin/pip install gguf==0.19.0
  venv/bin/python tests/golden/gguf_goldens.py

<format>.blocks U8 [n], <format>.values F32 [1024]. Codes and factors are random, scales are fp16 between 2^-7
and 2^-6 of either sign, or for the first block 0 and, for the second, the smallest number there is."""
import json
import pathlib
import struct

import gguf
import numpy as np

SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208], "IQ4_NL": [0], "MXFP4": []}
VALUES = 1024
HERE = pathlib.Path(__file__).parent


def blocks_of(name, rng):
    columns, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (VALUES // columns, size), dtype=np.uint8)
    for at in SCALES[name]:
        codes = (0x2000 | (rng.integers(0, 1 << 16, len(blocks)) & 0x83FF)).astype("<u2")
        codes[0], codes[1] = 0, 1
        blocks[:, at:at + 2] = codes.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(100, 150, len(blocks))
        blocks[0, 0], blocks[1, 0], blocks[2, 0] = 0, 1, 250
    return blocks


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        dtype = {"uint8": "U8", "float32": "F32", "int32": "I32"}[str(array.dtype)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            out.write(np.ascontiguousarray(array).tobytes())


def main():
    rng = np.random.default_rng(1)
    tensors = {}
    for name in SCALES:
        blocks = blocks_of(name, rng)
        values = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float32).reshape(-1)
        tensors[name + ".blocks"] = blocks.reshape(-1)
        tensors[name + ".values"] = values
    (HERE / "data/gguf").mkdir(exist_ok=True)
    write_safetensors(HERE / "data/gguf/blocks.safetensors", tensors)


if __name__ == "__main__":
    main()
