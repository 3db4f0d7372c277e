// SPDX-License-Identifier: MIT
//
// The 8-, 6- and 4-bit floating-point formats of the matrix and conversion instructions.
// gfx942's 8-bit formats are FNUZ (no infinity, one NaN at 0x80, no -0), gfx950's are OCP.
//
// Functions here are static: a file that is compiled for several targets must not share a copy that
// the linker picked from another file.
#ifndef MAINARCH_SIM_ISA_MINIFLOAT_H_
#define MAINARCH_SIM_ISA_MINIFLOAT_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/isa/decode.h"

namespace mainarch::sim::isa {

struct MiniFormat {
  int bits, exponent_bits, mantissa_bits, bias;
  bool fnuz, infinity, nan;
  float largest;
};
inline constexpr MiniFormat kFp8 = {8, 4, 3, 7, false, false, true, 448};
inline constexpr MiniFormat kBf8 = {8, 5, 2, 15, false, true, true, 57344};
inline constexpr MiniFormat kFp8Fnuz = {8, 4, 3, 8, true, false, true, 240};
inline constexpr MiniFormat kBf8Fnuz = {8, 5, 2, 16, true, false, true, 57344};
inline constexpr MiniFormat kFp6 = {6, 2, 3, 1, false, false, false, 7.5};
inline constexpr MiniFormat kBf6 = {6, 3, 2, 3, false, false, false, 28};
inline constexpr MiniFormat kFp4 = {4, 2, 1, 1, false, false, false, 6};

static inline const MiniFormat& Fp8Of(Isa isa) { return isa == Isa::kGfx942 ? kFp8Fnuz : kFp8; }
static inline const MiniFormat& Bf8Of(Isa isa) { return isa == Isa::kGfx942 ? kBf8Fnuz : kBf8; }

static constexpr float PowerOfTwo(int e) {
  float x = 1;
  for (; e > 0; --e) x *= 2;
  for (; e < 0; ++e) x /= 2;
  return x;
}

static constexpr float MiniToFloat(const MiniFormat& f, uint32_t code) {
  const uint32_t sign = code >> (f.bits - 1) & 1;
  const uint32_t exponent = code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
  const uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
  const uint32_t top = (1u << f.exponent_bits) - 1;
  if (f.fnuz && code == 0x80) return __builtin_nanf("");
  if (f.infinity && exponent == top) {
    return mantissa != 0 ? __builtin_nanf("") : sign ? -__builtin_inff() : __builtin_inff();
  }
  if (f.nan && !f.fnuz && !f.infinity && exponent == top &&
      mantissa == (1u << f.mantissa_bits) - 1) {
    return __builtin_nanf("");
  }
  const float magnitude =
      exponent == 0 ? static_cast<float>(mantissa) * PowerOfTwo(1 - f.bias - f.mantissa_bits)
                    : static_cast<float>(mantissa | 1u << f.mantissa_bits) *
                          PowerOfTwo(static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  return sign ? -magnitude : magnitude;
}

template <int kBits>
struct MiniTable {
  float value[1 << kBits];
};
template <int kBits>
static constexpr MiniTable<kBits> MakeMiniTable(const MiniFormat& f) {
  MiniTable<kBits> table{};
  for (uint32_t i = 0; i < 1u << kBits; ++i) table.value[i] = MiniToFloat(f, i);
  return table;
}
inline constexpr MiniTable<8> kFp8Table = MakeMiniTable<8>(kFp8),
                              kBf8Table = MakeMiniTable<8>(kBf8),
                              kFp8FnuzTable = MakeMiniTable<8>(kFp8Fnuz),
                              kBf8FnuzTable = MakeMiniTable<8>(kBf8Fnuz);
inline constexpr MiniTable<6> kFp6Table = MakeMiniTable<6>(kFp6),
                              kBf6Table = MakeMiniTable<6>(kBf6);
inline constexpr MiniTable<4> kFp4Table = MakeMiniTable<4>(kFp4);

static inline const float* TableOf(const MiniFormat& f) {
  if (f.bits == 4) return kFp4Table.value;
  if (f.bits == 6) return f.exponent_bits == 2 ? kFp6Table.value : kBf6Table.value;
  if (f.exponent_bits == 4) return f.fnuz ? kFp8FnuzTable.value : kFp8Table.value;
  return f.fnuz ? kBf8FnuzTable.value : kBf8Table.value;
}

// 2^e, -1022 <= e <= 1023: a call of the C library for each was a sixth of a step in MXFP8.
static inline double TwoTo(int e) { return __builtin_bit_cast(double, static_cast<uint64_t>(e + 1023) << 52); }

// `saturate`: too large becomes the largest number instead of infinity or NaN (FP16_OVFL, and
// always for the formats that have neither). `random` < 2^20: 0 rounds to nearest even, otherwise
// stochastic rounding adds random / 2^20 of a step before truncating (stochastic must be set).
static inline uint32_t FloatToMini(const MiniFormat& f, double value, bool saturate,
                            bool stochastic = false, uint32_t random = 0) {
  const uint32_t sign = std::signbit(value) ? 1u << (f.bits - 1) : 0;
  const uint32_t largest = [&f] {
    const uint32_t all = (1u << (f.bits - 1)) - 1;
    if (f.infinity)
      return all & ~((1u << f.mantissa_bits) - 1u)
                 ? ((1u << f.exponent_bits) - 2) << f.mantissa_bits | ((1u << f.mantissa_bits) - 1)
                 : 0;
    return f.nan && !f.fnuz ? all - 1 : all;
  }();
  const uint32_t nan = f.fnuz ? 0x80 : sign | ((1u << (f.bits - 1)) - 1);
  if (value != value) return f.nan ? nan : sign | largest;
  const double magnitude = std::fabs(value);
  const bool infinite = magnitude - magnitude != 0;
  const auto overflow = [&]() -> uint32_t {
    if (saturate || !f.nan) return sign | largest;
    if (f.infinity) return sign | (((1u << f.exponent_bits) - 1) << f.mantissa_bits);
    return nan;
  };
  if (infinite) return overflow();
  const int exponent = static_cast<int>(__builtin_bit_cast(uint64_t, magnitude) >> 52) - 1023;  // -1023: less than any format has
  const int e = std::max(exponent, 1 - f.bias);
  const double steps = magnitude * TwoTo(f.mantissa_bits - e);
  double whole = stochastic ? std::floor(steps + random * 0x1p-20) : std::nearbyint(steps);
  int at = e;
  if (whole >= 2 << f.mantissa_bits) {
    whole /= 2;
    ++at;
  }
  const double rounded = whole * TwoTo(at - f.mantissa_bits);
  if (rounded > static_cast<double>(f.largest)) return overflow();
  const uint32_t m = static_cast<uint32_t>(whole);
  if (m == 0) return f.fnuz ? 0 : sign;
  const uint32_t hidden = 1u << f.mantissa_bits;
  if (m < hidden) return sign | m;
  return sign | static_cast<uint32_t>(at + f.bias) << f.mantissa_bits | (m - hidden);
}

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_MINIFLOAT_H_
