// SPDX-License-Identifier: MIT
//
// The sixteen-lane vector of the target this file is compiled for: MAINARCH_TARGET is one of
// avx512_bf16, avx512, avx2_vnni, avx2, neon_i8mm, neon_bf16, neon_dot, neon, portable. Kernel files are compiled once a target, with its -m flags, and include nothing
// but this, kernels.h (and constants it is made of) and plain C headers: an inline function of a C++ header, compiled here, could
// be linked into code that runs on a lesser CPU.
#ifndef MAINARCH_BACKEND_CPU_SIMD_SIMD_H_
#define MAINARCH_BACKEND_CPU_SIMD_SIMD_H_

#include <stdint.h>
#if defined(MAINARCH_TARGET_avx512_bf16)
#define MAINARCH_TARGET_avx512  // and what MAINARCH_BF16_DOT guards
#define MAINARCH_BF16_DOT
#endif
#if defined(MAINARCH_TARGET_avx2_vnni)
#define MAINARCH_TARGET_avx2  // and products of bytes
#endif
#if defined(MAINARCH_TARGET_avx512) || defined(MAINARCH_TARGET_avx2)
#include <immintrin.h>
#endif
#if defined(MAINARCH_TARGET_neon_i8mm)
#define MAINARCH_TARGET_neon_dot  // and products of matrices of bytes
#endif
#if defined(MAINARCH_TARGET_neon_bf16)
#define MAINARCH_TARGET_neon_dot
#define MAINARCH_BF16_DOT
#endif
#if defined(MAINARCH_TARGET_neon_dot)
#define MAINARCH_TARGET_neon  // and what these guard
#endif
#if defined(MAINARCH_TARGET_neon)
#include <arm_neon.h>
#endif
// Pairs of bf16 columns are a vector of their own.
#if defined(MAINARCH_TARGET_avx512) || defined(MAINARCH_BF16_DOT)
#define MAINARCH_PAIRS
#endif

// Accumulators must be registers: gcc leaves loops over them in memory if left to itself.
#define MAINARCH_UNROLL _Pragma("GCC unroll 32")

namespace mainarch::cpu::MAINARCH_TARGET {

#if defined(MAINARCH_TARGET_avx512)
#include "backend/cpu/simd/avx512.h"
#elif defined(MAINARCH_TARGET_avx2)
#include "backend/cpu/simd/avx2.h"
#elif defined(MAINARCH_TARGET_neon)
#include "backend/cpu/simd/neon.h"
#else
#include "backend/cpu/simd/portable.h"
#endif

// Whether a vector is four of 32 registers: loops keep fewer sums then.
#if defined(MAINARCH_TARGET_neon)
inline constexpr bool kQuarters = true;
#else
inline constexpr bool kQuarters = false;
#endif

// Lanes are added in one fixed tree on every target: 8 apart, 4 apart, 2 apart, neighbours.
static inline float HorizontalSum(V a) {
  float t[16];
  Store(t, a);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) t[i] += t[i + step];
  }
  return t[0];
}
static inline float HorizontalMax(V a) {
  float t[16];
  Store(t, a);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) t[i] = t[i] > t[i + step] ? t[i] : t[i + step];
  }
  return t[0];
}

// e^a to about 1 ulp: a = n ln2 + r, |r| <= ln2 / 2, Taylor of degree 7. Below -104 the result is
// 0 (-inf included), above 88.7 it overflows to inf.
static inline V Exp(V a) {
  a = Max(Min(a, Set(128.0f)), Set(-104.0f));
  const V n = Round(Mul(a, Set(1.44269504088896341f)));
  // ln2 in two pieces: the first has few enough bits that n times it is exact.
  V r = Fma(n, Set(-0.693359375f), a);
  r = Fma(n, Set(2.12194440e-4f), r);
  V p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return ScaleByPower(p, n);
}

static inline V Silu(V a) { return Div(a, Add(Set(1.0f), Exp(Sub(Zero(), a)))); }

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_SIMD_SIMD_H_
