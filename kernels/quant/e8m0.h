// SPDX-License-Identifier: MIT
//
// E8M0: a bare exponent, the scale of the OCP MX formats. 2^(code - 127); 255 is NaN; no zero.
#ifndef MAINARCH_KERNELS_QUANT_E8M0_H_
#define MAINARCH_KERNELS_QUANT_E8M0_H_

#include "kernels/quant/bits.h"

namespace mainarch::quant {

inline constexpr uint8_t kE8m0Nan = 255;
inline constexpr uint8_t kE8m0One = 127;

constexpr float FloatFromE8m0(uint8_t code) {
  if (code == kE8m0Nan) return FloatFromBits(kF32QuietNan);
  // 2^-127 lies below the normal numbers of fp32: half of the smallest one.
  if (code == 0u) return FloatFromBits(0x00400000u);
  return FloatFromBits(static_cast<uint32_t>(code) << 23);
}

// The nearest power of two to a positive number, ties to the even code, saturating at 2^127. NaN,
// infinity, zero and negative numbers have no code and give NaN.
constexpr uint8_t E8m0FromFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if (bits == 0u || bits >= kF32Infinity) return kE8m0Nan;
  if (bits < 0x00800000u) return bits > 0x00600000u ? uint8_t{1} : uint8_t{0};  // 0.75 * 2^-126
  const uint32_t code = ShiftRightRne(bits, 23u);
  return static_cast<uint8_t>(code > 254u ? 254u : code);
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_E8M0_H_
