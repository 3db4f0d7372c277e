// SPDX-License-Identifier: MIT
#include "kernels/ops/resident.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(resident, Resident, "vgpr=256 sgpr=112 lds=24704")
MAINARCH_RETURN_TO(resident_return, resident, 24576)
static_assert(kResidentOpLds == 24576);

}  // namespace mainarch::kernels
