// SPDX-License-Identifier: MIT
#include "kernels/quant/mxfp4.h"

#include <cmath>
#include <limits>
#include <vector>

#include "support/test.h"

namespace mainarch::quant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGrid[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
constexpr Mxfp4ScaleMode kModes[] = {Mxfp4ScaleMode::kEven, Mxfp4ScaleMode::kFloor,
                                     Mxfp4ScaleMode::kCeil};

static_assert(FloatFromE2m1(7) == 6.0f && E2m1FromFloat(-6.0f) == 15);
static_assert(Mxfp4Scale(6.0f, Mxfp4ScaleMode::kFloor) == 127);

TEST(e2m1_decodes_every_code) {
  for (uint8_t code = 0; code < 16; ++code) {
    const float value = FloatFromE2m1(code);
    CHECK_EQ(std::fabs(value), kGrid[code & 7]);
    CHECK_EQ(std::signbit(value), code >= 8);
    CHECK_EQ(uint32_t{E2m1FromFloat(value)}, uint32_t{code});
  }
}

TEST(e2m1_encodes_to_the_nearest_and_ties_to_even) {
  // The table of the reference: 0.25 0.75 1.25 1.75 2.5 3.5 5 go to 0 1 1 2 2 4 4.
  const float ties[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  const float to[7] = {0, 1, 1, 2, 2, 4, 4};
  for (int i = 0; i < 7; ++i) {
    for (const float sign : {1.0f, -1.0f}) {
      CHECK_EQ(FloatFromE2m1(E2m1FromFloat(sign * ties[i])), sign * to[i]);
      const float below = std::nextafterf(ties[i], 0);
      const float above = std::nextafterf(ties[i], kInf);
      CHECK_EQ(FloatFromE2m1(E2m1FromFloat(sign * below)), sign * kGrid[i]);
      CHECK_EQ(FloatFromE2m1(E2m1FromFloat(sign * above)), sign * kGrid[i + 1]);
    }
  }
  for (const float big : {6.0f, 7.0f, 1e30f, kInf, kNan}) CHECK_EQ(E2m1FromFloat(big), 7);
  CHECK_EQ(E2m1FromFloat(std::nextafterf(6, 0)), 7);
  CHECK_EQ(E2m1FromFloat(-kInf), 15);
  CHECK_EQ(E2m1FromFloat(-0.0f), 8);
  CHECK_EQ(E2m1FromFloat(std::numeric_limits<float>::denorm_min()), 0);
}

// The scale exponent of amax by its definition in real numbers.
int Exponent(double amax, Mxfp4ScaleMode mode) {
  int exponent = 0;
  const double mantissa = 2 * std::frexp(amax, &exponent);  // in [1, 2)
  --exponent;
  switch (mode) {
    case Mxfp4ScaleMode::kEven:
      return exponent - 2 + (mantissa >= 1.75 ? 1 : 0);
    case Mxfp4ScaleMode::kFloor:
      return exponent - 2;
    case Mxfp4ScaleMode::kCeil:
      return exponent - 2 + (mantissa > 1.5 ? 1 : 0);
  }
  return 0;
}

TEST(scales_follow_their_definitions) {
  for (const Mxfp4ScaleMode mode : kModes) {
    for (uint32_t bits = 0x00800000; bits < 0x7f800000; bits += 50021) {
      const float amax = FloatFromBits(bits);
      int expected = Exponent(amax, mode) + 127;
      if (expected < 0) expected = 0;
      CHECK_EQ(int{Mxfp4Scale(amax, mode)}, expected);
    }
    for (int exponent = -100; exponent < 100; ++exponent) {
      for (const float mantissa : {1.0f, 1.25f, 1.5f, 1.5000001f, 1.7499999f, 1.75f, 1.9999999f}) {
        const float amax = std::ldexp(mantissa, exponent);
        CHECK_EQ(int{Mxfp4Scale(amax, mode)}, Exponent(amax, mode) + 127);
      }
    }
    CHECK_EQ(Mxfp4Scale(0.0f, mode), 0);
    CHECK_EQ(Mxfp4Scale(std::numeric_limits<float>::denorm_min(), mode), 0);
    CHECK_EQ(Mxfp4Scale(kInf, mode), kE8m0Nan);
    CHECK_EQ(Mxfp4Scale(kNan, mode), kE8m0Nan);
    CHECK_LE(Mxfp4Scale(std::numeric_limits<float>::max(), mode), 253);
  }
}

TEST(scale_modes_differ_where_they_should) {
  // amax:   6    7   1.74  1.75  1.51
  const struct {
    float amax;
    int even, floor, ceil;
  } table[] = {{6.0f, 127, 127, 127}, {7.0f, 128, 127, 128},  {6.9f, 127, 127, 128},
               {4.0f, 127, 127, 127}, {1.74f, 125, 125, 126}, {1.75f, 126, 125, 126},
               {1.5f, 125, 125, 125}, {448.0f, 134, 133, 134}};
  for (const auto& row : table) {
    CHECK_EQ(int{Mxfp4Scale(row.amax, Mxfp4ScaleMode::kEven)}, row.even);
    CHECK_EQ(int{Mxfp4Scale(row.amax, Mxfp4ScaleMode::kFloor)}, row.floor);
    CHECK_EQ(int{Mxfp4Scale(row.amax, Mxfp4ScaleMode::kCeil)}, row.ceil);
  }
}

TEST(inverse_scales_are_exact) {
  for (int code = 0; code <= 253; ++code) {
    CHECK_EQ(Mxfp4InverseScale(uint8_t(code)) * double(FloatFromE8m0(uint8_t(code))), 1.0);
  }
}

TEST(nibbles_are_low_first) {
  const uint8_t row[2] = {0x21, 0x43};
  for (int column = 0; column < 4; ++column) CHECK_EQ(int{Mxfp4Nibble(row, column)}, column + 1);
}

TEST(blocks_err_at_most_half_a_step_and_saturate_only_by_one) {
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    float values[kMxfp4Block];
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -31 + round % 40 - 20);
    }
    for (const Mxfp4ScaleMode mode : kModes) {
      uint8_t packed[kMxfp4Block / 2];
      const uint8_t code = QuantizeMxfp4Block(values, packed, mode);
      const double scale = FloatFromE8m0(code);
      // Largest error in units of the scale: half of the widest step (1), or what saturates.
      const double limit = mode == Mxfp4ScaleMode::kFloor ? 2.0 : 1.0;
      for (int i = 0; i < kMxfp4Block; ++i) {
        const double got = FloatFromE2m1(Mxfp4Nibble(packed, i)) * scale;
        CHECK_LE(std::fabs(got - values[i]) / scale, limit);
      }
    }
  }
}

TEST(blocks_of_zeros_and_of_infinities) {
  float values[kMxfp4Block] = {};
  uint8_t packed[kMxfp4Block / 2];
  CHECK_EQ(QuantizeMxfp4Block(values, packed, Mxfp4ScaleMode::kEven), 0);
  for (const uint8_t byte : packed) CHECK_EQ(int{byte}, 0);
  values[5] = -kInf;
  CHECK_EQ(QuantizeMxfp4Block(values, packed, Mxfp4ScaleMode::kEven), kE8m0Nan);
}

}  // namespace
}  // namespace mainarch::quant
