// SPDX-License-Identifier: MIT
//
// Every code of every format against its definition in double precision; encoders against the
// nearest code found by search, at every midpoint and beside it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "support/test.h"

namespace mainarch::quant {
namespace {

using test::Context;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// They are constexpr: these hold while compiling.
static_assert(FloatFromBf16(0x3f80) == 1.0f && Bf16FromFloat(1.0f) == 0x3f80);
static_assert(FloatFromF16(0x3c00) == 1.0f && F16FromFloat(-2.0f) == 0xc000);
static_assert(FloatFromFp8E4m3(0x7e) == 448.0f && Fp8E4m3FromFloat(1e9f) == 0x7e);
static_assert(FloatFromE8m0(127) == 1.0f && E8m0FromFloat(4.0f) == 129);

// sign, exponent field of `ebits` with `bias`, mantissa of `mbits`: the IEEE-like value of a code.
double Definition(uint32_t code, int ebits, int mbits, int bias) {
  const double sign = (code >> (ebits + mbits)) != 0 ? -1 : 1;
  const int exponent = static_cast<int>((code >> mbits) & ((1u << ebits) - 1));
  const double fraction = (code & ((1u << mbits) - 1)) * std::ldexp(1.0, -mbits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Checks `encode` at and around every midpoint of two neighbours of the sorted non-negative
// `values` (index = code), and the same with a minus sign.
template <class Encode>
void CheckNearest(Context& test_context, const std::vector<float>& values, uint32_t sign_bit,
                  Encode encode) {
  for (size_t code = 0; code + 1 < values.size(); ++code) {
    const double middle = (double(values[code]) + double(values[code + 1])) / 2;
    const float tie = static_cast<float>(middle);
    CHECK(tie == middle);  // one more bit than the format has: fp32 holds it
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    CHECK_EQ(uint32_t{encode(values[code])}, code);
    CHECK_EQ(uint32_t{encode(tie)}, even);
    CHECK_EQ(uint32_t{encode(std::nextafterf(tie, 0))}, code);
    CHECK_EQ(uint32_t{encode(std::nextafterf(tie, kInf))}, code + 1);
    CHECK_EQ(uint32_t{encode(-values[code])}, code | sign_bit);
    CHECK_EQ(uint32_t{encode(-tie)}, even | sign_bit);
    CHECK_EQ(uint32_t{encode(-std::nextafterf(tie, 0))}, code | sign_bit);
    CHECK_EQ(uint32_t{encode(-std::nextafterf(tie, kInf))}, (code + 1) | sign_bit);
  }
}

TEST(bf16_decodes_every_code) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = FloatFromBf16(static_cast<uint16_t>(code));
    const uint32_t exponent = (code >> 7) & 0xff;
    if (exponent == 0xff) {
      CHECK_EQ(std::isnan(value), (code & 0x7f) != 0);
      CHECK_EQ(std::isinf(value), (code & 0x7f) == 0);
    } else {
      CHECK(value == Definition(code, 8, 7, 127));
      CHECK_EQ(uint32_t{Bf16FromFloat(value)}, code);
    }
    CHECK_EQ(std::signbit(value), code >= 0x8000);
  }
}

TEST(bf16_encodes_to_the_nearest_and_ties_to_even) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7f80; ++code) values.push_back(FloatFromBf16(uint16_t(code)));
  CheckNearest(test_context, values, 0x8000, Bf16FromFloat);
  CHECK_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  CHECK_EQ(Bf16FromFloat(kInf), 0x7f80);
  CHECK_EQ(Bf16FromFloat(-kInf), 0xff80);
  CHECK_EQ(Bf16FromFloat(kNan), 0x7fc0);
  // The payload lies in the half that is dropped: it must not become an infinity.
  CHECK_EQ(Bf16FromFloat(FloatFromBits(0x7f800001)), 0x7fc0);
  CHECK_EQ(Bf16FromFloat(FloatFromBits(0xffffffff)), 0xffc0);
}

TEST(f16_decodes_every_code) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = FloatFromF16(static_cast<uint16_t>(code));
    if (((code >> 10) & 0x1f) == 0x1f) {
      CHECK_EQ(std::isnan(value), (code & 0x3ff) != 0);
      CHECK_EQ(std::isinf(value), (code & 0x3ff) == 0);
    } else {
      CHECK(value == Definition(code, 5, 10, 15));
      CHECK_EQ(uint32_t{F16FromFloat(value)}, code);
    }
    CHECK_EQ(std::signbit(value), code >= 0x8000);
  }
}

TEST(f16_encodes_to_the_nearest_and_ties_to_even) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7c00; ++code) values.push_back(FloatFromF16(uint16_t(code)));
  CheckNearest(test_context, values, 0x8000, F16FromFloat);
  CHECK_EQ(F16FromFloat(65519.99f), 0x7bff);
  CHECK_EQ(F16FromFloat(65520.0f), 0x7c00);  // the tie above the largest number: infinity
  CHECK_EQ(F16FromFloat(1e30f), 0x7c00);
  CHECK_EQ(F16FromFloat(-kInf), 0xfc00);
  CHECK_EQ(F16FromFloat(kNan), 0x7e00);
  CHECK_EQ(F16FromFloat(FloatFromBits(0x00000001)), 0);
}

TEST(fp8_e4m3fn_decodes_every_code) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = FloatFromFp8E4m3(static_cast<uint8_t>(code));
    CHECK_EQ(std::isnan(value), (code & 0x7f) == 0x7f);
    CHECK_EQ(std::signbit(value), code >= 0x80);
    if (std::isnan(value)) continue;
    CHECK(value == Definition(code, 4, 3, 7));
    CHECK_EQ(uint32_t{Fp8E4m3FromFloat(value)}, code);
  }
}

TEST(fp8_e4m3fn_encodes_to_the_nearest_and_saturates) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7f; ++code) values.push_back(FloatFromFp8E4m3(uint8_t(code)));
  CHECK_EQ(values.back(), kFp8E4m3Max);
  CheckNearest(test_context, values, 0x80, Fp8E4m3FromFloat);
  CHECK_EQ(Fp8E4m3FromFloat(464.0f), 0x7e);  // would tie with 480, which is the NaN's place
  CHECK_EQ(Fp8E4m3FromFloat(std::nextafterf(448.0f, 0)), 0x7e);
  CHECK_EQ(Fp8E4m3FromFloat(1e30f), 0x7e);
  CHECK_EQ(Fp8E4m3FromFloat(-kInf), 0xfe);
  CHECK_EQ(Fp8E4m3FromFloat(kNan), 0x7f);
  CHECK_EQ(Fp8E4m3FromFloat(-kNan), 0xff);
}

TEST(fp8_fn_becomes_fnuz_of_half_the_value) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float fn = FloatFromFp8E4m3(static_cast<uint8_t>(code));
    const float fnuz = FloatFromFp8E4m3Fnuz(FnuzFromFn(static_cast<uint8_t>(code)));
    if (std::isnan(fn)) {
      CHECK(std::isnan(fnuz));
    } else {
      CHECK(fnuz * kFnuzScale == fn);
    }
  }
}

TEST(fp8_e4m3fnuz_decodes_every_code) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = FloatFromFp8E4m3Fnuz(static_cast<uint8_t>(code));
    CHECK_EQ(std::isnan(value), code == 0x80);
    if (code != 0x80) CHECK(value == Definition(code, 4, 3, 8));
  }
  CHECK_EQ(FloatFromFp8E4m3Fnuz(0x7f), 240.0f);
}

TEST(e8m0_decodes_every_code) {
  for (uint32_t code = 0; code < 255; ++code) {
    const float value = FloatFromE8m0(static_cast<uint8_t>(code));
    CHECK(value == std::ldexp(1.0, static_cast<int>(code) - 127));
    CHECK_EQ(uint32_t{E8m0FromFloat(value)}, code);
  }
  CHECK(std::isnan(FloatFromE8m0(255)));
}

TEST(e8m0_encodes_to_the_nearest_and_ties_to_even) {
  for (uint32_t code = 0; code < 254; ++code) {
    const float tie = 1.5f * FloatFromE8m0(static_cast<uint8_t>(code));
    CHECK_EQ(uint32_t{E8m0FromFloat(tie)}, code % 2 == 0 ? code : code + 1);
    CHECK_EQ(uint32_t{E8m0FromFloat(std::nextafterf(tie, 0))}, code);
    CHECK_EQ(uint32_t{E8m0FromFloat(std::nextafterf(tie, kInf))}, code + 1);
  }
  CHECK_EQ(E8m0FromFloat(std::numeric_limits<float>::max()), 254);
  CHECK_EQ(E8m0FromFloat(std::numeric_limits<float>::denorm_min()), 0);
  for (const float bad : {0.0f, -0.0f, -1.0f, kInf, -kInf, kNan}) {
    CHECK_EQ(E8m0FromFloat(bad), kE8m0Nan);
  }
}

TEST(no_bit_pattern_encodes_farther_than_the_nearest) {
  // A coarse walk over all fp32 bit patterns: the error never beats half a step to a neighbour.
  for (uint64_t bits = 0; bits < 0x7f800000u; bits += 40009) {
    const float value = FloatFromBits(static_cast<uint32_t>(bits));
    const uint8_t fp8 = Fp8E4m3FromFloat(value);
    const double error = std::fabs(double(FloatFromFp8E4m3(fp8)) - value);
    if (fp8 > 0) CHECK_LE(error, std::fabs(double(FloatFromFp8E4m3(fp8 - 1)) - value));
    if (fp8 < 0x7e) CHECK_LE(error, std::fabs(double(FloatFromFp8E4m3(fp8 + 1)) - value));
    const uint16_t half = F16FromFloat(value);
    if (half >= 0x7c00) continue;
    const double half_error = std::fabs(double(FloatFromF16(half)) - value);
    if (half > 0) CHECK_LE(half_error, std::fabs(double(FloatFromF16(half - 1)) - value));
    if (half < 0x7bff) CHECK_LE(half_error, std::fabs(double(FloatFromF16(half + 1)) - value));
  }
  CHECK(SameBits(FloatFromFp8E4m3(0x80), -0.0f));
}

}  // namespace
}  // namespace mainarch::quant
