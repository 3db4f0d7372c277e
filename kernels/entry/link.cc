// SPDX-License-Identifier: MIT
#include "kernels/common/kernel.h"
#include "kernels/ops/link.h"

namespace mainarch::kernels {

KERNEL(ping_pong, PingPong, "vgpr=32 sgpr=48 lds=16")

}  // namespace mainarch::kernels
