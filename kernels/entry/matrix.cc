// SPDX-License-Identifier: MIT
#include "kernels/ops/matrix.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(bf16_gemv, Bf16Gemv, "vgpr=64 sgpr=56")
KERNEL(bf16_mfma, Bf16Mfma, "vgpr=96 sgpr=56 lds=4096")
KERNEL(mxfp4_gemv, Mxfp4Gemv, "vgpr=96 sgpr=56")
KERNEL(mxfp4_mfma, Mxfp4Mfma, "vgpr=96 sgpr=56 lds=4096")
KERNEL(bf16_mfma_f32, Bf16MfmaOf<float>, "vgpr=128 sgpr=56 gfx942.sgpr=112 lds=4096")
KERNEL(mxfp4_mfma_f32, Mxfp4MfmaOf<float>, "vgpr=128 sgpr=56 gfx942.sgpr=112 lds=4096")
KERNEL(quantize_mxfp4, QuantizeMxfp4, "vgpr=64 sgpr=56")

}  // namespace mainarch::kernels
