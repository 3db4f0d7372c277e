// SPDX-License-Identifier: MIT
#include "kernels/ops/link.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(ping_pong, PingPong, "vgpr=32 sgpr=48 lds=16")

}  // namespace mainarch::kernels
