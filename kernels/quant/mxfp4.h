// SPDX-License-Identifier: MIT
//
// MXFP4 (OCP MX v1.0): E2M1 elements, two a byte with the even one in the low nibble, and one E8M0
// scale for 32 consecutive elements along K. The three ways in use to choose the scale are a
// parameter, because a checkpoint's bytes depend on it (reference: AMD Quark uses "even").
#ifndef MAINARCH_KERNELS_QUANT_MXFP4_H_
#define MAINARCH_KERNELS_QUANT_MXFP4_H_

#include "kernels/quant/bits.h"
#include "kernels/quant/e8m0.h"

namespace mainarch::quant {

inline constexpr int kMxfp4Block = 32;
// NVFP4 has the same elements, and a scale of e4m3fn for so many, beside one multiplier for all.
inline constexpr int kNvfp4Group = 16;

enum class Mxfp4ScaleMode : uint8_t {
  kEven,   // amax rounded to one mantissa bit first: >= 1.75 * 2^n counts as 2^(n+1)
  kFloor,  // 2^(floor(log2(amax)) - 2), the OCP text
  kCeil,   // 2^ceil(log2(amax / 6)): the smallest scale at which nothing saturates
};

// Bit 3 sign, bits 2-1 exponent (bias 1), bit 0 mantissa: 0 0.5 1 1.5 2 3 4 6. Code 8 is -0.
constexpr float FloatFromE2m1(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 8u) << 28;
  const uint32_t exponent = (code >> 1) & 3u;
  const uint32_t mantissa = code & 1u;
  if (exponent != 0u) return FloatFromBits(sign | ((exponent + 126u) << 23) | (mantissa << 22));
  return FloatFromBits(sign | (mantissa != 0u ? 0x3f000000u : 0u));
}

// Nearest, ties to the even code, saturating at +-6. There is no NaN: one becomes +-6, and the
// scale of its block (Mxfp4Scale) carries the NaN.
constexpr uint8_t E2m1FromFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 28) & 8u;
  const uint32_t magnitude = bits & ~kF32Sign;
  if (magnitude >= 0x40c00000u) return static_cast<uint8_t>(sign | 7u);  // >= 6 or NaN
  if (magnitude >= 0x3f800000u) {                                        // >= 1: normal
    const uint32_t code = ShiftRightRne(magnitude - (126u << 23), 22u);
    return static_cast<uint8_t>(sign | (code > 7u ? 7u : code));
  }
  // 0, 0.5 or 1: the midpoints are 0.25 (to 0) and 0.75 (to 1).
  const uint32_t code = magnitude <= 0x3e800000u ? 0u : (magnitude < 0x3f400000u ? 1u : 2u);
  return static_cast<uint8_t>(sign | code);
}

// The scale of a block whose largest magnitude is `amax` >= 0: 0 for an empty block, NaN when amax
// is not finite.
constexpr uint8_t Mxfp4Scale(float amax, Mxfp4ScaleMode mode) {
  const uint32_t bits = BitsOfFloat(amax) & ~kF32Sign;
  if (bits >= kF32Infinity) return kE8m0Nan;
  uint32_t rounding = 0u;
  if (mode == Mxfp4ScaleMode::kEven) rounding = 0x00200000u;
  if (mode == Mxfp4ScaleMode::kCeil) rounding = 0x003fffffu;
  const uint32_t exponent = (bits + rounding) >> 23;
  return static_cast<uint8_t>(exponent < 2u ? 0u : exponent - 2u);
}

// 1 / scale, exact, for the codes that Mxfp4Scale gives (at most 253); a larger code gives 0.
constexpr float Mxfp4InverseScale(uint8_t scale) {
  return scale > 253u ? 0.0f : FloatFromBits((254u - scale) << 23);
}

constexpr uint8_t Mxfp4Nibble(const uint8_t* row, int64_t column) {
  const uint8_t byte = row[column / 2];
  return static_cast<uint8_t>((column & 1) != 0 ? byte >> 4 : byte & 0xfu);
}

// One block of 32 values into 16 bytes; returns the scale.
constexpr uint8_t QuantizeMxfp4Block(const float* values, uint8_t* packed, Mxfp4ScaleMode mode) {
  uint32_t amax = 0u;
  for (int i = 0; i < kMxfp4Block; ++i) {
    const uint32_t magnitude = BitsOfFloat(values[i]) & ~kF32Sign;
    amax = magnitude > amax ? magnitude : amax;
  }
  const uint8_t scale = Mxfp4Scale(FloatFromBits(amax), mode);
  const float inverse = Mxfp4InverseScale(scale);
  for (int i = 0; i < kMxfp4Block / 2; ++i) {
    const uint32_t low = E2m1FromFloat(values[2 * i] * inverse);
    const uint32_t high = E2m1FromFloat(values[2 * i + 1] * inverse);
    packed[i] = static_cast<uint8_t>(low | (high << 4));
  }
  return scale;
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_MXFP4_H_
