// SPDX-License-Identifier: MIT
//
// The types every kernel speaks: fixed-width integers, small vectors, address-space pointers, and
// the one safe way to look at a value's bits. Device only. No ISA in here.
#ifndef MAINARCH_KERNELS_COMMON_TYPES_H_
#define MAINARCH_KERNELS_COMMON_TYPES_H_

#include <stdint.h>

#include "kernels/args.h"

#define DEVICE [[gnu::always_inline]] inline

namespace mainarch::kernels {

inline constexpr uint32_t kWave = 64;  // lanes of a wave, both ISAs

template <class T, int N>
using Vec = T __attribute__((ext_vector_type(N)));

using u32x2 = Vec<uint32_t, 2>;
using u32x4 = Vec<uint32_t, 4>;
using u32x6 = Vec<uint32_t, 6>;
using i32x8 = Vec<int32_t, 8>;
using f32x2 = Vec<float, 2>;
using f32x4 = Vec<float, 4>;
using f32x16 = Vec<float, 16>;
using bf16x2 = Vec<__bf16, 2>;
using bf16x4 = Vec<__bf16, 4>;
using bf16x8 = Vec<__bf16, 8>;
using s16x4 = Vec<int16_t, 4>;

// Address spaces of the AMDGPU backend: 1 global, 3 LDS, 4 constant (scalar loads).
template <class T>
using Global = T __attribute__((address_space(1)))*;
template <class T>
using Lds = T __attribute__((address_space(3)))*;
template <class T>
using Constant = const T __attribute__((address_space(4)))*;

// The bits of `from` as another type. By value on purpose: clang's __builtin_bit_cast of a vector
// element (`v[i]`, `v.y`) as an lvalue reads element 0. tools/lint.py keeps it out of all else.
template <class To, class From>
DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <class T>
DEVICE Global<T> At(Address<T> pointer) {
  return reinterpret_cast<Global<T>>(pointer.address);
}

template <class T>
DEVICE T Min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
DEVICE T Max(T a, T b) {
  return a < b ? b : a;
}
DEVICE constexpr uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_TYPES_H_
