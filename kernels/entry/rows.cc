// SPDX-License-Identifier: MIT
#include "kernels/ops/rows.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(rmsnorm, RmsNorm, "vgpr=96 sgpr=72 lds=16")
KERNEL(rope, Rope, "vgpr=64 sgpr=64")
KERNEL(swiglu, Swiglu, "vgpr=64 sgpr=64")
// fp32 activations; the _bf16 ones round for a matrix product that follows.
using RmsNormF32 = RmsNormOf<float, float, float>;
using RmsNormF32Bf16 = RmsNormOf<float, float, uint16_t>;
using RopeF32 = RopeOf<float>;
using SwigluF32 = SwigluOf<float, float>;
using SwigluF32Bf16 = SwigluOf<float, uint16_t>;
KERNEL(rmsnorm_f32, RmsNormF32, "vgpr=160 sgpr=72 lds=16")
KERNEL(rmsnorm_f32_bf16, RmsNormF32Bf16, "vgpr=160 sgpr=72 lds=16")
KERNEL(rope_f32, RopeF32, "vgpr=64 sgpr=64")
KERNEL(swiglu_f32, SwigluF32, "vgpr=64 sgpr=64")
KERNEL(swiglu_f32_bf16, SwigluF32Bf16, "vgpr=64 sgpr=64")

KERNEL(softmax, Softmax, "vgpr=32 sgpr=56 lds=16")

}  // namespace mainarch::kernels
