// SPDX-License-Identifier: MIT
#include "sim/isa/matrix_exact.h"

#include <algorithm>
#include <cmath>

namespace mainarch::sim::isa {
namespace {

constexpr int kProductBits = 24, kSumBits = 31, kZeroExponent = -126, kMaxGroup = 16;

struct Parts {
  int64_t significand = 0;  // times 2^(exponent - bits behind the point)
  int exponent = kZeroExponent;
};

Parts Split(float x, const ExactFormat& f) {
  if (x == 0) return {};
  int exponent;
  std::frexp(x, &exponent);
  exponent = std::max(exponent - 1, f.min_exponent);
  return {static_cast<int64_t>(std::ldexp(static_cast<double>(x), f.mantissa_bits - exponent)),
          exponent};
}

int64_t ShiftTowardZero(int64_t x, int by) {
  if (by > 62) return 0;
  return x < 0 ? -(-x >> by) : x >> by;
}
// Rounds down, as an arithmetic shift does.
int64_t ShiftDown(int64_t x, int by) { return x >> std::min(by, 63); }

// Sum of every `step`th product, with kProductBits behind the point of the largest exponent.
Parts FusedSum(const Parts* products, int count, int step, int bits) {
  Parts sum;
  sum.exponent = products[0].exponent;
  for (int i = step; i < count; i += step)
    sum.exponent = std::max(sum.exponent, products[i].exponent);
  for (int i = 0; i < count; i += step) {
    sum.significand += ShiftTowardZero(products[i].significand << (kProductBits - bits),
                                       sum.exponent - products[i].exponent);
  }
  return sum;
}

// One group with the accumulator.
float AddGroup(const ExactRule& rule, const Parts* products, int count, float c) {
  const int bits = rule.a.mantissa_bits + rule.b.mantissa_bits;
  Parts sum = FusedSum(products, count, rule.eight ? 2 : 1, bits);
  if (rule.eight && count > 1) {
    Parts odd = FusedSum(products + 1, count - 1, 2, bits);
    const int top = std::max(sum.exponent, odd.exponent);
    sum.significand = ShiftDown(sum.significand, top - sum.exponent) +
                      ShiftDown(odd.significand, top - odd.exponent);
    sum.exponent = top;
  }
  constexpr ExactFormat kF32 = {23, -126};
  const Parts old = Split(c, kF32);
  const int top = std::max(sum.exponent, old.exponent);
  const int64_t wide = ShiftDown(sum.significand << (kSumBits - kProductBits), top - sum.exponent);
  int64_t kept =
      ShiftDown(old.significand << (kProductBits - kF32.mantissa_bits), top - old.exponent);
  if (rule.eight && old.exponent < top - 25) kept = 0;
  const int64_t total = wide + kept * (int64_t{1} << (kSumBits - kProductBits));
  return static_cast<float>(std::ldexp(static_cast<double>(total), top - kSumBits));
}

}  // namespace

float ExactDot(const ExactRule& rule, const float* a, int a_step, const float* b, int b_step,
               int count, float c, int scale) {
  for (int first = 0; first < count; first += rule.group) {
    const int n = std::min(rule.group, count - first);
    Parts products[kMaxGroup];
    // What is infinite or too large for fp32, of either sign; both together are no number.
    bool nan = c != c, plus = c == INFINITY, minus = c == -INFINITY;
    for (int i = 0; i < n; ++i) {
      const float x = a[(first + i) * a_step], y = b[(first + i) * b_step];
      const double product = std::ldexp(static_cast<double>(x) * y, scale);
      nan |= product != product;
      plus |= product >= 0x1p128;
      minus |= product <= -0x1p128;
    }
    if (nan || plus || minus) {
      c = nan || (plus && minus) ? std::nanf("") : plus ? INFINITY : -INFINITY;
      continue;
    }
    for (int i = 0; i < n; ++i) {
      const Parts x = Split(a[(first + i) * a_step], rule.a),
                  y = Split(b[(first + i) * b_step], rule.b);
      products[i] = {x.significand * y.significand, x.exponent + y.exponent + scale};
    }
    c = AddGroup(rule, products, n, c);
  }
  return c;
}

void ExactMultiply(const ExactRule& rule, const float* a, const float* b, int m_count, int n_count,
                   int k_count, float* acc, const int* scale_a, const int* scale_b) {
  for (int m = 0; m < m_count; ++m) {
    for (int n = 0; n < n_count; ++n) {
      const int scale =
          (scale_a != nullptr ? scale_a[m] : 0) + (scale_b != nullptr ? scale_b[n] : 0);
      float& c = acc[m * n_count + n];
      c = ExactDot(rule, a + m, m_count, b + n, n_count, k_count, c, scale);
    }
  }
}

}  // namespace mainarch::sim::isa
