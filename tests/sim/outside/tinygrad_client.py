# SPDX-License-Identifier: MIT
"""A client that is none of ours and loads no ROCm: tinygrad drives /dev/kfd by itself, compiles its
kernels with LLVM and shares them over several GPUs. Each line says how far a result is from NumPy's;
run by sim_outside on a virtual node. Nothing here is about tinygrad: it is about the node."""
import sys

import numpy as np
from tinygrad import Tensor, dtypes

rng = np.random.default_rng(1)
bad = 0


def check(name, got, want, tolerance):
    global bad
    error = float(np.abs(got - want).max() / max(1.0, float(np.abs(want).max())))
    bad += error > tolerance
    print(f"{name}: error {error:.1e} {'ok' if error <= tolerance else 'BAD'}", flush=True)


x = rng.standard_normal((32, 48)).astype(np.float32)
a = rng.standard_normal((64, 128)).astype(np.float32)
b = rng.standard_normal((128, 64)).astype(np.float32)
exp = np.exp(x - x.max(1, keepdims=True))
check("softmax", Tensor(x).softmax().numpy(), exp / exp.sum(1, keepdims=True), 1e-5)
check("half matmul", (Tensor(a).half() @ Tensor(b).half()).float().numpy(), a @ b, 1e-2)
numbers = np.arange(1000, dtype=np.int32) * 7919
check("integer division", (Tensor(numbers) // 13).numpy(), numbers // 13, 0)
gpus = tuple(f"AMD:{i}" for i in range(int(sys.argv[1])))
product = Tensor(a).shard(gpus, axis=1) @ Tensor(b).shard(gpus, axis=0)  # ends in an all-reduce
check("matmul over all GPUs", product.numpy(), a @ b, 1e-5)
print("bad results:", bad)
sys.exit(bad != 0)
