// SPDX-License-Identifier: MIT
//
// MXFP8, as products take x where weights are MXFP4 or fp8 and the chip multiplies both as they are (Taken::kScaled): of each 32
// neighbouring columns e4m3 codes with one factor, a power of two as E8M0 has it (OCP Microscaling Formats 1.0, 5.2).
// The factor is the least with which no code is beyond e4m3's 448, so nothing is cut.
#ifndef MAINARCH_KERNELS_QUANT_MXFP8_H_
#define MAINARCH_KERNELS_QUANT_MXFP8_H_

#include <stdint.h>

namespace mainarch::quant {

inline constexpr uint32_t kMxfp8Block = 32;  // columns of a factor

// E8M0 of a block whose largest magnitude has these bits as a bf16: 2^(n - 8) of one in [2^n, 1.75 * 2^n], and 448 is
// 1.75 * 2^8; twice that beyond. At least 2^-126, which the converting instructions take for what it is.
[[gnu::always_inline]] constexpr uint32_t Mxfp8Scale(uint32_t magnitude) {
  const uint32_t exponent = (magnitude + 0x1f) >> 7;
  return (exponent > 9 ? exponent : 9) - 8;
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_MXFP8_H_
