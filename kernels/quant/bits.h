// SPDX-License-Identifier: MIT
//
// What the format headers of this folder share. They compile for the host (g++, C++20) and for
// amdgcn (freestanding clang): <stdint.h> only, no libc, no tables in memory, constexpr throughout.
// They say what a code means, exactly and slowly enough to read; fast paths elsewhere are tested
// against them.
#ifndef MAINARCH_KERNELS_QUANT_BITS_H_
#define MAINARCH_KERNELS_QUANT_BITS_H_

#include <stdint.h>

namespace mainarch::quant {

constexpr float FloatFromBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
constexpr uint32_t BitsOfFloat(float value) { return __builtin_bit_cast(uint32_t, value); }

inline constexpr uint32_t kF32Sign = 0x80000000u;
inline constexpr uint32_t kF32Infinity = 0x7f800000u;
inline constexpr uint32_t kF32QuietNan = 0x7fc00000u;

// value >> shift, rounded to nearest, ties to even; shift in [1, 31].
constexpr uint32_t ShiftRightRne(uint32_t value, uint32_t shift) {
  const uint32_t kept = value >> shift;
  const uint32_t lost = value & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  return kept + ((lost > half || (lost == half && (kept & 1u) != 0u)) ? 1u : 0u);
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_BITS_H_
