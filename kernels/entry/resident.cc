// SPDX-License-Identifier: MIT
#include "kernels/ops/resident.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

using ResidentSmall = ResidentIn<kResidentRoom>;
using ResidentLarge = ResidentIn<kResidentLargeRoom>;
KERNEL(resident, ResidentSmall, "vgpr=256 sgpr=112 lds=24768")
KERNEL(resident_large, ResidentLarge, "vgpr=344 agpr=88 sgpr=112 lds=45760")
MAINARCH_RETURN_TO(resident_return, resident, 24576)
MAINARCH_RETURN_TO(resident_large_return, resident_large, 45568)
static_assert(kResidentRoom.op_lds == 24576 && kResidentLargeRoom.op_lds == 45568);

}  // namespace mainarch::kernels
