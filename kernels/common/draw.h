// SPDX-License-Identifier: MIT
//
// What sampling is made of, defined once for the CPU's sampler and the GPU's: the same tokens for
// the same logits, seed and position. Nothing here depends on an order of additions: masses are
// integers, and who wins the race is a maximum.
//
// Host and device. Products and sums are not fused on either (-ffp-contract=off there, no FMA in
// the host's baseline).
#ifndef MAINARCH_KERNELS_COMMON_DRAW_H_
#define MAINARCH_KERNELS_COMMON_DRAW_H_

#include "kernels/common/philox.h"
#include "kernels/quant/bits.h"

namespace mainarch::kernels {

#define MAINARCH_DRAW [[gnu::always_inline]] constexpr

inline constexpr float kLargestFloat = 0x1.fffffep+127f;

// An unsigned number that rises with x; -0 is 0. Not for nan.
MAINARCH_DRAW uint32_t OrderOf(float x) {
  const uint32_t bits = quant::BitsOfFloat(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
MAINARCH_DRAW float FromOrder(uint32_t order) {
  return quant::FloatFromBits(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}
// The same of a score, (logit - largest logit) / temperature, which is at most 0.
MAINARCH_DRAW uint32_t OrderOfScore(float score) {
  return ~(quant::BitsOfFloat(score) & 0x7fffffffu);
}
MAINARCH_DRAW float ScoreFromOrder(uint32_t order) {
  return quant::FloatFromBits(~order | 0x80000000u);
}

// exp(x) = 2^n times this, n = t - kExpMagic, t = x * kLog2e + kExpMagic: the usual reduction to
// [-ln2/2, ln2/2] and the degree-5 polynomial of Cephes expf. F: a float, or a vector of them.
inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kExpMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
template <class F>
MAINARCH_DRAW F ExpMantissa(F x, F t) {
  const F n = t - kExpMagic;
  const F r = x - n * 0.693359375f - n * -2.12194440e-4f;
  F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}

// exp(x), x <= 0; 0 below -87. Relative error below 2e-7.
MAINARCH_DRAW float WeightOf(float x) {
  const float t = x * kLog2e + kExpMagic;
  const float y = ExpMantissa(x, t);
  const uint32_t power = (quant::BitsOfFloat(t) - quant::BitsOfFloat(kExpMagic) + 127u) << 23;
  return x >= -87.0f ? y * quant::FloatFromBits(power) : 0.0f;
}

// ---- the nucleus: masses are weights in units of 2^-shift, so that sums are exact ----

// So that a whole vocabulary of weights of 1 stays below 2^63.
MAINARCH_DRAW uint32_t MassShift(uint32_t vocab) {
  uint32_t width = 0;
  while (vocab >> width != 0 && width < 31) ++width;
  return 62 - width;
}
// Of a weight from 0 to 1 (a hair more is no harm), cut off.
MAINARCH_DRAW uint64_t MassOf(float weight, uint32_t shift) {
  const uint32_t bits = quant::BitsOfFloat(weight);
  const uint32_t exponent = bits >> 23;
  const uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  const uint32_t up = exponent + shift;  // mantissa * 2^(up - 150)
  if (exponent == 0 || up + 24 <= 150) return 0;
  return up >= 150 ? mantissa << (up - 150) : mantissa >> (150 - up);
}
// How much of `total` the tail may have that top_p, below 1, drops; less than all of it.
MAINARCH_DRAW uint64_t TailLimit(uint64_t total, float top_p) {
  // 1 - top_p is a multiple of 2^-24, exactly.
  const uint64_t part = static_cast<uint32_t>((1.0f - top_p) * 0x1p24f);
  const uint64_t limit = (total >> 24) * part + ((total & 0xffffffu) * part >> 24);
  return limit < total ? limit : total - 1;
}

// ---- the race: argmax of weight / E, E exponential, is a draw proportional to weight ----

// Four vocabulary entries share a block: entry i takes word i % 4 of the block of i / 4.
MAINARCH_DRAW PhiloxBlock DrawBlock(uint64_t seed, uint64_t position, uint32_t quad) {
  return Philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                {{static_cast<uint32_t>(position), quad, 0,  // stream 0: sampling
                  static_cast<uint32_t>(position >> 32)}});
}

// Natural logarithm of a positive normal number.
MAINARCH_DRAW double ExactLog(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh(s); |s| < 0.172, so the first term left out is below 2^-56 of the sum.
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 0;
  sum = (sum + 1.0 / 21) * z;
  sum = (sum + 1.0 / 19) * z;
  sum = (sum + 1.0 / 17) * z;
  sum = (sum + 1.0 / 15) * z;
  sum = (sum + 1.0 / 13) * z;
  sum = (sum + 1.0 / 11) * z;
  sum = (sum + 1.0 / 9) * z;
  sum = (sum + 1.0 / 7) * z;
  sum = (sum + 1.0 / 5) * z;
  sum = (sum + 1.0 / 3) * z;
  return exponent * 0.6931471805599453 + 2 * s * (1 + sum);
}

// The best of a race so far: the highest score, of equals the lowest id. Candidates come by
// ascending id.
struct RaceRunner {
  double best = -1;
  uint32_t winner = 0;

  MAINARCH_DRAW void Consider(uint32_t id, double weight, uint32_t random) {
    const double u = (random + 0.5) * (1.0 / 4294967296.0);
    if (weight <= best * (1 - u)) return;  // -log u >= 1 - u
    const double score = weight / -ExactLog(u);
    if (score > best) {
      best = score;
      winner = id;
    }
  }
};

#undef MAINARCH_DRAW

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_DRAW_H_
