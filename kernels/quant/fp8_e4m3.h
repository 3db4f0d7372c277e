// SPDX-License-Identifier: MIT
//
// FP8 E4M3 in its two kinds. Checkpoints and gfx950 hold OCP e4m3fn: bias 7, largest 448, no
// infinity, NaN 0x7f and 0xff. The matrix units of gfx942 read e4m3fnuz: bias 8, largest 240, one
// NaN at 0x80, no negative zero. The same bits mean half as much there, so FnuzFromFn converts
// codes and the owner of the scale multiplies it by kFnuzScale.
#ifndef MAINARCH_KERNELS_QUANT_FP8_E4M3_H_
#define MAINARCH_KERNELS_QUANT_FP8_E4M3_H_

#include "kernels/quant/bits.h"

namespace mainarch::quant {

inline constexpr float kFp8E4m3Max = 448.0f;
inline constexpr uint8_t kFp8E4m3NanCode = 0x7f;  // or with the sign bit
inline constexpr uint8_t kFp8E4m3FnuzNanCode = 0x80;
inline constexpr float kFnuzScale = 2.0f;

constexpr bool Fp8E4m3IsNan(uint8_t code) { return (code & 0x7fu) == kFp8E4m3NanCode; }

constexpr float FloatFromFp8E4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = (code >> 3) & 0xfu;
  const uint32_t mantissa = code & 7u;
  if (Fp8E4m3IsNan(code)) return FloatFromBits(sign | kF32QuietNan);
  if (exponent != 0u) return FloatFromBits(sign | ((exponent + 120u) << 23) | (mantissa << 20));
  // Subnormal: mantissa * 2^-9; the product is exact and normal in fp32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return FloatFromBits(sign | BitsOfFloat(magnitude));
}

// Nearest, ties to even, saturating: everything beyond 448, infinity too, becomes +-448. A NaN
// stays a NaN of its sign.
constexpr uint8_t Fp8E4m3FromFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & ~kF32Sign;
  if (magnitude > kF32Infinity) return static_cast<uint8_t>(sign | kFp8E4m3NanCode);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // >= 448
  if (magnitude >= 0x3c800000u) {                                           // >= 2^-6: normal
    const uint32_t code = ShiftRightRne(magnitude - (120u << 23), 20u);
    return static_cast<uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
  }
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 117u) return static_cast<uint8_t>(sign);  // < 2^-10: below half of 2^-9
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<uint8_t>(sign | ShiftRightRne(mantissa, 141u - exponent));
}

constexpr float FloatFromFp8E4m3Fnuz(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = (code >> 3) & 0xfu;
  const uint32_t mantissa = code & 7u;
  if (code == kFp8E4m3FnuzNanCode) return FloatFromBits(kF32QuietNan);
  if (exponent != 0u) return FloatFromBits(sign | ((exponent + 119u) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-10f;
  return FloatFromBits(sign | BitsOfFloat(magnitude));
}

// The fnuz code whose value times kFnuzScale is the fn value: the same bits, but for the two places
// where the kinds differ. Negative zero loses its sign; a NaN stays one (as bits 0x7f and 0xff it
// would read as +-240).
constexpr uint8_t FnuzFromFn(uint8_t code) {
  if (Fp8E4m3IsNan(code)) return kFp8E4m3FnuzNanCode;
  return code == 0x80u ? uint8_t{0} : code;
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_FP8_E4M3_H_
