// SPDX-License-Identifier: MIT
//
// Decode tables, computed at compile time from the formats' definitions.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TABLES_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TABLES_H_

#include "backend/cpu/kernels.h"
#include "kernels/quant/iq4_nl.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// The bf16 bits of e4m3fn code 0..127: bias 7, 3 mantissa bits; exact in bf16. 0x7f is NaN.
static constexpr uint16_t Fp8CodeToBF16(int code) {
  if (code == 0x7f) return 0x7fc0;
  const int exponent = code >> 3;
  int mantissa = code & 7;
  if (exponent > 0) {
    return static_cast<uint16_t>((exponent - 7 + 127) << 7 | mantissa << 4);
  }
  if (mantissa == 0) return 0;
  // Denormal: mantissa * 2^-9, brought to 1.xxx form.
  int shift = 0;
  while (mantissa < 8) {
    mantissa <<= 1;
    ++shift;
  }
  return static_cast<uint16_t>((1 - 7 - shift + 127) << 7 | (mantissa & 7) << 4);
}

// Exact: no more than eight bits.
static constexpr uint16_t IntegerToBF16(int value) {
  return static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(value)) >> 16);
}

static constexpr Tables MakeTables() {
  Tables t = {};
  for (int code = 0; code < 128; ++code) {
    const uint16_t bits = Fp8CodeToBF16(code);
    t.fp8_high[code] = static_cast<uint8_t>(bits >> 8);
    t.fp8_low[code] = static_cast<uint8_t>(bits);
  }
  // e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
  constexpr uint16_t magnitude[8] = {0x0000, 0x3f00, 0x3f80, 0x3fc0,
                                     0x4000, 0x4040, 0x4080, 0x40c0};
  for (int i = 0; i < 32; ++i) {
    t.fp4[i] = static_cast<uint16_t>(magnitude[i & 7] | ((i & 8) != 0 ? 0x8000 : 0));
    t.int4[i] = IntegerToBF16((i & 15) - 8);
    t.uint4[i] = IntegerToBF16(i & 15);
    t.iq4nl[i] = IntegerToBF16(quant::kIq4NlValues[i & 15]);
    t.uint5[i] = IntegerToBF16(i);
    t.int5[i] = IntegerToBF16(i - 16);
  }
  for (int i = 0; i < 64; ++i) t.int6[i] = IntegerToBF16(i - 32);
  return t;
}

alignas(64) static constexpr Tables kTables = MakeTables();

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TABLES_H_
