// SPDX-License-Identifier: MIT
//
// IEEE binary16, in integer arithmetic so that host and device agree whatever their denormal modes.
#ifndef MAINARCH_KERNELS_QUANT_F16_H_
#define MAINARCH_KERNELS_QUANT_F16_H_

#include "kernels/quant/bits.h"

namespace mainarch::quant {

constexpr float FloatFromF16(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t exponent = (code >> 10) & 0x1fu;
  uint32_t mantissa = code & 0x3ffu;
  if (exponent == 0x1fu) return FloatFromBits(sign | kF32Infinity | (mantissa << 13));
  if (exponent != 0u) return FloatFromBits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0u) return FloatFromBits(sign);
  // Subnormal, mantissa * 2^-24: move the leading one up to the implicit place.
  uint32_t normal_exponent = 113u;
  while ((mantissa & 0x400u) == 0u) {
    mantissa <<= 1;
    --normal_exponent;
  }
  return FloatFromBits(sign | (normal_exponent << 23) | ((mantissa & 0x3ffu) << 13));
}

// Nearest, ties to even; subnormals kept; too large becomes infinity; a NaN becomes the quiet NaN
// of its sign.
constexpr uint16_t F16FromFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & ~kF32Sign;
  if (magnitude > kF32Infinity) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 2^16
  if (magnitude >= 0x38800000u) {                                              // >= 2^-14: normal
    // A carry out of the mantissa is a carry into the exponent, up to infinity.
    return static_cast<uint16_t>(sign | ShiftRightRne(magnitude - (112u << 23), 13u));
  }
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102u) return static_cast<uint16_t>(sign);  // < 2^-25: below half of 2^-24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<uint16_t>(sign | ShiftRightRne(mantissa, 126u - exponent));
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_F16_H_
