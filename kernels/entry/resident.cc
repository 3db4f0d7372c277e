// SPDX-License-Identifier: MIT
#include "kernels/ops/resident.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(resident, Resident, "vgpr=152 sgpr=112 lds=4160")

}  // namespace mainarch::kernels
