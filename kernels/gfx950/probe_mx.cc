// SPDX-License-Identifier: MIT
#include "probe_mx.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(probe_scaled_matrix, ProbeScaledMatrix, "vgpr=128 sgpr=64 agpr=64")
KERNEL(probe_mx_convert, ProbeMxConvert, "vgpr=128 sgpr=64")

}  // namespace mainarch::kernels
