// SPDX-License-Identifier: MIT
//
// The example of mainarch-launch(5): a kernel as a HIP program has it, with a grid-stride loop, which
// needs the hidden arguments, and dynamic LDS. Compiled by
//   clang -x hip -nogpuinc -nogpulib --offload-device-only --offload-arch=gfx950 scale.hip -o scale.co
#include "../../unit/sim_isa/hip/hip.h"

extern __shared__ float shared[];

// y = a x + the largest |x| that the block has met.
KERNEL void scale(const float* x, float* y, float a, u32 n) {
  const u32 stride = GridBlocks(0) * blockDim.x;
  float most = 0;
  for (u32 i = GlobalId(); i < n; i += stride) most = __builtin_fmaxf(most, __builtin_fabsf(x[i]));
  shared[threadIdx.x] = most;
  for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      shared[threadIdx.x] = __builtin_fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
  }
  __syncthreads();
  for (u32 i = GlobalId(); i < n; i += stride) y[i] = a * x[i] + shared[0];
}

// Waits until all blocks of the grid have come: hangs unless all are resident at once.
KERNEL void meet(u32* count, u32* out) {
  __shared__ u32 arrived;
  if (threadIdx.x == 0) {
    __atomic_fetch_add(count, 1u, __ATOMIC_RELAXED);
    while (__atomic_load_n(count, __ATOMIC_RELAXED) < GridBlocks(0)) __builtin_amdgcn_s_sleep(1);
    arrived = 1;
  }
  __syncthreads();
  out[GlobalId()] = arrived;
}
