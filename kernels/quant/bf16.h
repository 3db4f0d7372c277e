// SPDX-License-Identifier: MIT
//
// bfloat16: the upper half of an fp32.
#ifndef MAINARCH_KERNELS_QUANT_BF16_H_
#define MAINARCH_KERNELS_QUANT_BF16_H_

#include "kernels/quant/bits.h"

namespace mainarch::quant {

constexpr float FloatFromBf16(uint16_t code) {
  return FloatFromBits(static_cast<uint32_t>(code) << 16);
}

// Nearest, ties to even; too large becomes infinity; a NaN becomes the quiet NaN of its sign.
constexpr uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & ~kF32Sign) > kF32Infinity) {
    return static_cast<uint16_t>(((bits & kF32Sign) | kF32QuietNan) >> 16);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_BF16_H_
