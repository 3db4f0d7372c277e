// SPDX-License-Identifier: MIT
#include "kernels/ops/probe.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(probe_lanes, ProbeLanes, "vgpr=64 sgpr=64")
KERNEL(probe_convert, ProbeConvert, "vgpr=64 sgpr=64")
KERNEL(probe_matrix, ProbeMatrix, "vgpr=128 sgpr=64 agpr=64")

}  // namespace mainarch::kernels
