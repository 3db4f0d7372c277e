// SPDX-License-Identifier: MIT
#include "scaled_matrix.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(mxfp4_scaled, Mxfp4Scaled, "vgpr=64 sgpr=48 lds=4096")

}  // namespace mainarch::kernels
