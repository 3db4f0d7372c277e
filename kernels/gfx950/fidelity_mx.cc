// SPDX-License-Identifier: MIT
#include "fidelity_mx.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(fidelity_mx, FidelityMx, "vgpr=128 sgpr=64 agpr=64")
KERNEL(fidelity_transpose, FidelityTranspose, "vgpr=64 sgpr=64 lds=4096")

}  // namespace mainarch::kernels
