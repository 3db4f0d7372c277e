// SPDX-License-Identifier: MIT
#include "kernels/ops/rows.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(rmsnorm, RmsNorm, "vgpr=96 sgpr=72 lds=16")
KERNEL(rope, Rope, "vgpr=64 sgpr=64")
KERNEL(swiglu, Swiglu, "vgpr=64 sgpr=64")
KERNEL(softmax, Softmax, "vgpr=32 sgpr=56 lds=16")

}  // namespace mainarch::kernels
