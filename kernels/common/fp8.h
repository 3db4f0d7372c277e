// SPDX-License-Identifier: MIT
//
// The fp8 converts both ISAs have under one name and two meanings: e4m3fn where
// isa::kFacts.has_ocp_fp8, otherwise e4m3fnuz. Code that holds OCP bytes goes through
// isa::Fp8OcpToFloat2 of prims.h.
#ifndef MAINARCH_KERNELS_COMMON_FP8_H_
#define MAINARCH_KERNELS_COMMON_FP8_H_

#include "kernels/common/types.h"

namespace mainarch::kernels {

// Bytes 0 and 1 (kHigh: 2 and 3) of `bytes` as floats.
template <bool kHigh>
DEVICE f32x2 NativeFp8ToFloat2(uint32_t bytes) {
  return __builtin_amdgcn_cvt_pk_f32_fp8(bytes, kHigh);
}
// Two floats into bytes 0 and 1 (kHigh: 2 and 3) of `keep`, round to nearest even.
template <bool kHigh>
DEVICE uint32_t NativeFp8FromFloat2(float a, float b, uint32_t keep) {
  return __builtin_amdgcn_cvt_pk_fp8_f32(a, b, keep, kHigh);
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_FP8_H_
