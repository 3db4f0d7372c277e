// SPDX-License-Identifier: MIT
#include "kernels/ops/litmus.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(litmus_hand_over, HandOver, "vgpr=32 sgpr=64 lds=16")
KERNEL(litmus_words, HandWords, "vgpr=32 sgpr=64 lds=16")
KERNEL(litmus_fill, LitmusFill, "vgpr=32 sgpr=48 lds=16")
KERNEL(litmus_beside, LitmusBeside, "vgpr=16 sgpr=48")
KERNEL(litmus_echo, LitmusEcho, "vgpr=16 sgpr=32")

}  // namespace mainarch::kernels
