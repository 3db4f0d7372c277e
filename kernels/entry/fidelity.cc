// SPDX-License-Identifier: MIT
#include "kernels/ops/fidelity.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(fidelity_math, FidelityMath, "vgpr=64 sgpr=64")
KERNEL(fidelity_convert, FidelityConvert, "vgpr=64 sgpr=64")
KERNEL(fidelity_matrix, FidelityMatrix, "vgpr=64 sgpr=64 agpr=64")
KERNEL(fidelity_order, FidelityOrder, "vgpr=64 sgpr=64")

}  // namespace mainarch::kernels
