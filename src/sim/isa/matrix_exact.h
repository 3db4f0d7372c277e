// SPDX-License-Identifier: MIT
//
// Matrix products to the bit of the published CDNA3 model (MMA-Sim, arXiv 2511.10909: probed on an
// MI300X): products are summed in groups, in fixed point.
//
//   A group's products (of f16 or bf16: up to 8; of the 8-bit formats: 16; of xf32: 4) are aligned
//   to the largest of their exponents and cut, towards zero, to 24 bits behind the point. 8-bit
//   formats sum even and odd k apart first. The sum is cut downwards to 31 bits behind the point of
//   the larger exponent of sum and accumulator, the accumulator to 24; the 8-bit formats drop an
//   accumulator that lies more than 25 below. One rounding to f32 (nearest even) a group.
//
// f32, f64 and i8 need none of it: they are one fused multiply-add a product, as in the fast mode.
// What CDNA4 does is not published. Its instructions use the same groups here, with a scale added
// to the exponents of its block's products: assumed (Origin::kAssumed).
//
// This is the definition, not for speed: matrix_exact.inc has the same eight columns at a time. Pure
// functions; any thread.
#ifndef MAINARCH_SIM_ISA_MATRIX_EXACT_H_
#define MAINARCH_SIM_ISA_MATRIX_EXACT_H_

#include <cstdint>

namespace mainarch::sim::isa {

// How an element's significand and exponent are cut out of its value.
struct ExactFormat {
  int mantissa_bits = 0;
  int min_exponent = 0;  // of normal numbers
};
inline constexpr ExactFormat kExactF16 = {10, -14}, kExactBf16 = {7, -126}, kExactXf32 = {10, -126},
                             kExactFp8 = {3, -6}, kExactBf8 = {2, -14}, kExactFp8Fnuz = {3, -7},
                             kExactBf8Fnuz = {2, -15}, kExactFp6 = {3, 0}, kExactBf6 = {2, -2},
                             kExactFp4 = {1, 0};

struct ExactRule {
  ExactFormat a, b;
  int group = 8;       // products that are summed at once
  bool eight = false;  // 8-bit formats and smaller: even and odd k apart
};

// c + the dot product of `count` pairs, `a` and `b` in the steps given. scale: 2^n that each
// product is multiplied with.
float ExactDot(const ExactRule& rule, const float* a, int a_step, const float* b, int b_step,
               int count, float c, int scale = 0);

// acc[m][n] += sum over k of a[k][m] * b[k][n], times 2^scale_a[m] and 2^scale_b[n] where given.
void ExactMultiply(const ExactRule& rule, const float* a, const float* b, int m_count, int n_count,
                   int k_count, float* acc, const int* scale_a = nullptr,
                   const int* scale_b = nullptr);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_MATRIX_EXACT_H_
