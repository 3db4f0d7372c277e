// SPDX-License-Identifier: MIT
#include "kernels/common/kernel.h"
#include "kernels/ops/resident.h"

namespace mainarch::kernels {

KERNEL(resident, Resident, "vgpr=152 sgpr=112 lds=4160")

}  // namespace mainarch::kernels
