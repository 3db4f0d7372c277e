// SPDX-License-Identifier: MIT
//
// The matrix instructions both ISAs have, and how their operands lie in the lanes.
//
// 16x16: lane l is (i, g) = (l % 16, l / 16). Lane (i, g) holds of A row i and of B column i the
// elements k = width * g .. width * (g + 1) - 1, and of D column i rows 4g .. 4g+3. A and B need
// only agree on the order of k, so a lane may feed any k it likes if it does so on both sides. MFMA
// ignores EXEC: all 64 lanes must hold something harmless.
#ifndef MAINARCH_KERNELS_COMMON_MFMA_H_
#define MAINARCH_KERNELS_COMMON_MFMA_H_

#include "kernels/common/types.h"

namespace mainarch::kernels {

// K = 16: four bf16 a lane.
DEVICE f32x4 Mfma16x16x16Bf16(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(BitCast<s16x4>(a), BitCast<s16x4>(b), c, 0, 0,
                                                   0);
}
// K = 8, 32x32: lane (i, h) = (l % 32, l / 32) holds k = 4h..4h+3; D column i, rows
// 8 * (j / 4) + 4h + j % 4 for j = 0..15.
DEVICE f32x16 Mfma32x32x8Bf16(u32x2 a, u32x2 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(BitCast<s16x4>(a), BitCast<s16x4>(b), c, 0, 0, 0);
}
// K = 32: eight fp8 a lane, in the chip's own fp8 (isa::kFacts.has_ocp_fp8).
DEVICE f32x4 Mfma16x16x32Fp8(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(BitCast<int64_t>(a), BitCast<int64_t>(b), c, 0,
                                                    0, 0);
}

// K = 16: four f16 a lane.
DEVICE f32x4 Mfma16x16x16F16(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(BitCast<Vec<_Float16, 4>>(a),
                                               BitCast<Vec<_Float16, 4>>(b), c, 0, 0, 0);
}
// K = 4: one float a lane.
DEVICE f32x4 Mfma16x16x4F32(float a, float b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0);
}
// K = 32: eight bf8 a lane, in the chip's own bf8.
DEVICE f32x4 Mfma16x16x32Bf8(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(BitCast<int64_t>(a), BitCast<int64_t>(b), c, 0,
                                                    0, 0);
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_MFMA_H_
