// SPDX-License-Identifier: MIT
//
// Four-bit K and V: E2M1 elements, and for 32 of one head a scale of one byte, E5M3: an E4M3 whose
// sign bit, of no use to a scale, is a fifth bit of exponent. So it holds every E4M3 scale, and V of
// a layer that is a thousand times smaller than another's as well. As bits it is the top of an fp16
// without its sign. An element times its scale has 6 significant bits: exact in bf16.
//
// The scale is the one with the least sum of squared errors. Which ones it can be: with A the largest
// magnitude and s a scale, s <= A / 9 is beaten by 2 s, whose grid lacks only s / 2 and 3 s / 2 of
// that of s (31 elements lose at most s^2 / 4 each, A gains more); s >= A / 3.5 is beaten by s / 2,
// whose grid up to 3 s holds that of s. With c the code of the least scale >= A / 6, what is left is
// c - 6 to c + 6; kFirstCandidate and kCandidates allow for rounding, and fill 16 lanes. (Among scales
// below 2^-13 s / 2 may have no code: nothing is claimed of blocks whose A is below 6 x 2^-13.)
#ifndef MAINARCH_KERNELS_QUANT_KV_FP4_H_
#define MAINARCH_KERNELS_QUANT_KV_FP4_H_

#include "kernels/quant/mxfp4.h"

namespace mainarch::quant {

inline constexpr int kKvFp4Block = 32;
inline constexpr uint8_t kE5m3Largest = 0xf7;  // 61440; above are infinity and NaN
inline constexpr int kFirstCandidate = -7;
inline constexpr int kCandidates = 16;

constexpr float FloatFromE5m3(uint8_t code) {
  const uint32_t exponent = code >> 3, mantissa = code & 7u;
  if (exponent == 0u) return static_cast<float>(mantissa) * 0x1p-17f;
  if (exponent == 31u) return FloatFromBits(mantissa == 0u ? kF32Infinity : kF32QuietNan);
  return FloatFromBits(((exponent + 112u) << 23) | (mantissa << 20));
}

// The code of the least scale that is not below `value` >= 0; the largest code where there is none.
constexpr uint8_t E5m3AtLeast(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if (bits >= BitsOfFloat(61440.0f)) return kE5m3Largest;
  if (bits >= 0x38800000u) return static_cast<uint8_t>((bits - (112u << 23) + 0xfffffu) >> 20);  // 2^-14
  const float units = value * 0x1p17f;  // of 2^-17, below 8
  const uint32_t whole = static_cast<uint32_t>(units);
  return static_cast<uint8_t>(whole + (units > static_cast<float>(whole) ? 1u : 0u));
}

// The first of the kCandidates scales to try for a block whose largest magnitude is `largest`; never 0.
constexpr uint8_t FirstCandidate(float largest) {
  const int code = E5m3AtLeast(largest * (1.0f / 6)) + kFirstCandidate;
  return static_cast<uint8_t>(code < 1 ? 1 : code > kE5m3Largest - (kCandidates - 1)
                                               ? kE5m3Largest - (kCandidates - 1)
                                               : code);
}

// The scale of 32 values, 0 if they are all zero; codes[i] gets the element of values[i].
constexpr uint8_t QuantizeKvFp4Block(const float* values, uint8_t* codes) {
  float largest = 0;
  for (int i = 0; i < kKvFp4Block; ++i) {
    const float magnitude = values[i] < 0 ? -values[i] : values[i];
    largest = magnitude > largest ? magnitude : largest;
  }
  uint8_t best = 0;
  if (largest >= 6 * FloatFromE5m3(kE5m3Largest)) {
    best = kE5m3Largest;  // all others clip more, and squares may overflow
  } else if (largest > 0) {
    const uint8_t first = FirstCandidate(largest);
    float least = 0;
    for (int c = first; c < first + kCandidates; ++c) {
      const float scale = FloatFromE5m3(static_cast<uint8_t>(c));
      float sum = 0;
      for (int i = 0; i < kKvFp4Block; ++i) {
        const float off = values[i] - scale * FloatFromE2m1(E2m1FromFloat(values[i] / scale));
        sum += off * off;
      }
      if (best == 0 || sum < least) {
        best = static_cast<uint8_t>(c);
        least = sum;
      }
    }
  }
  for (int i = 0; i < kKvFp4Block; ++i) {
    codes[i] = best == 0 ? uint8_t{0} : E2m1FromFloat(values[i] / FloatFromE5m3(best));
  }
  return best;
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_KV_FP4_H_
