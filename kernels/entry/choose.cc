// SPDX-License-Identifier: MIT
#include "kernels/ops/choose.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(router, Router, "vgpr=72 sgpr=112")
KERNEL(pick, Pick, "vgpr=64 sgpr=64 lds=32")
KERNEL(pick_merge, PickMerge, "vgpr=32 sgpr=48")

}  // namespace mainarch::kernels
