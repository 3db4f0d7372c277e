// SPDX-License-Identifier: MIT
//
// Expectations as in vectors.cc for what is left of VALU: 16-bit and packed arithmetic,
// three-operand forms, sums of differences, normalised and 8-bit converts, cube maps.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "unit/sim_isa/vectors.h"

namespace mainarch::sim::isa::test {
namespace {

using u64 = uint64_t;
using Expect = u64 (*)(u64, u64, u64, u64);

float F(u64 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x)); }
double H(u64 x) {
  return static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(x)));
}
// One rounding from double: _Float16's own conversion does it right.
u64 BH(double x) { return __builtin_bit_cast(uint16_t, static_cast<_Float16>(x)); }
int S16(u64 x) { return static_cast<int16_t>(x); }
int U16(u64 x) { return static_cast<uint16_t>(x); }
u64 Low16(int64_t x) { return static_cast<u64>(x) & 0xffff; }

template <int (*kRead)(u64)>
u64 Middle(u64 a, u64 b, u64 c) {
  int x[3] = {kRead(a), kRead(b), kRead(c)};
  std::sort(x, x + 3);
  return Low16(x[1]);
}
double MinNum(double a, double b) {
  return a != a ? b : b != b ? a : (a < b || (a == b && std::signbit(a))) ? a : b;
}
double MaxNum(double a, double b) {
  return a != a ? b : b != b ? a : (a > b || (a == b && std::signbit(b))) ? a : b;
}

// Both halves by one rule.
template <class T>
u64 Halves(T f, u64 a, u64 b, u64 c = 0) {
  return (f(a & 0xffff, b & 0xffff, c & 0xffff) & 0xffff) |
         (f(a >> 16 & 0xffff, b >> 16 & 0xffff, c >> 16 & 0xffff) & 0xffff) << 16;
}
#define PACKED(expression)               \
  [](u64 a, u64 b, u64 c, u64) {         \
    return Halves(                       \
        [](u64 x, u64 y, u64 z) -> u64 { \
          (void)z;                       \
          return expression;             \
        },                               \
        a, b, c);                        \
  }

u64 SumOfDifferences(u64 a, u64 b, bool masked) {
  u64 sum = 0;
  for (int k = 0; k < 32; k += 8) {
    const int x = a >> k & 255, y = b >> k & 255;
    if (!masked || y != 0) sum += static_cast<u64>(std::abs(x - y));
  }
  return sum;
}
u64 Quad(u64 a, u64 b, u64 c, bool masked) {
  u64 out = 0;
  for (int k = 0; k < 4; ++k)
    out |=
        std::min<u64>((c >> (16 * k) & 0xffff) + SumOfDifferences(a >> (8 * k), b, masked), 0xffff)
        << (16 * k);
  return out;
}
u64 Norm(double x, double scale, double low) {
  if (x != x) return 0;
  return Low16(static_cast<int64_t>(std::nearbyint(std::min(std::max(x, low), 1.0) * scale)));
}
// A float cut to f16, towards zero.
u64 CutHalf(float x) {
  u64 h = BH(x);
  if (std::isfinite(x) && std::fabs(H(h)) > std::fabs(x)) --h;
  return h;
}

}  // namespace

std::vector<Vector> MoreVectors() {
  constexpr Kind i = Kind::kInt, f = Kind::kF32, h = Kind::kF16, p = Kind::kF16Pair;
  const auto v = [](const char* name, Kind in, Kind out, Expect expect, double tolerance = 0) {
    return Vector{name, in, out, expect, tolerance};
  };
  return {
      // three operands of 16 bits
      v("v_min3_i16", i, i,
        [](u64 a, u64 b, u64 c, u64 d) {
          return (d & 0xffff0000) | Low16(std::min({S16(a), S16(b), S16(c)}));
        }),
      v("v_max3_i16", i, i,
        [](u64 a, u64 b, u64 c, u64 d) {
          return (d & 0xffff0000) | Low16(std::max({S16(a), S16(b), S16(c)}));
        }),
      v("v_med3_i16", i, i,
        [](u64 a, u64 b, u64 c, u64 d) { return (d & 0xffff0000) | Middle<S16>(a, b, c); }),
      v("v_min3_u16", i, i,
        [](u64 a, u64 b, u64 c, u64 d) {
          return (d & 0xffff0000) | Low16(std::min({U16(a), U16(b), U16(c)}));
        }),
      v("v_max3_u16", i, i,
        [](u64 a, u64 b, u64 c, u64 d) {
          return (d & 0xffff0000) | Low16(std::max({U16(a), U16(b), U16(c)}));
        }),
      v("v_med3_u16", i, i,
        [](u64 a, u64 b, u64 c, u64 d) { return (d & 0xffff0000) | Middle<U16>(a, b, c); }),
      v("v_min3_f16", h, h,
        [](u64 a, u64 b, u64 c, u64) { return BH(MinNum(MinNum(H(a), H(b)), H(c))); }),
      v("v_max3_f16", h, h,
        [](u64 a, u64 b, u64 c, u64) { return BH(MaxNum(MaxNum(H(a), H(b)), H(c))); }),
      v("v_fma_f16", h, h, [](u64 a, u64 b, u64 c, u64) { return BH(std::fma(H(a), H(b), H(c))); }),
      v("v_ldexp_f16", h, h, [](u64 a, u64 b, u64, u64) { return BH(std::ldexp(H(a), S16(b))); }),
      // one operand of 16 bits
      v("v_fract_f16", h, h,
        [](u64 a, u64, u64, u64) {
          const double x = H(a), r = x - std::floor(x);
          return std::isfinite(x) ? std::min<u64>(BH(r), 0x3bff) : BH(NAN);
        }),
      v("v_exp_f16", h, h, [](u64 a, u64, u64, u64) { return BH(std::exp2(H(a))); }),
      v("v_log_f16", h, h, [](u64 a, u64, u64, u64) { return BH(std::log2(H(a))); }),
      v("v_frexp_mant_f16", h, h,
        [](u64 a, u64, u64, u64) {
          int e;
          return std::isfinite(H(a)) ? BH(std::frexp(H(a), &e)) : a & 0xffff;
        }),
      v("v_frexp_exp_i16_f16", h, i,
        [](u64 a, u64, u64, u64) {
          int e = 0;
          if (std::isfinite(H(a))) std::frexp(H(a), &e);
          return Low16(e);
        }),
      v("v_cvt_norm_i16_f16", h, i, [](u64 a, u64, u64, u64) { return Norm(H(a), 32767, -1); }),
      v("v_cvt_norm_u16_f16", h, i, [](u64 a, u64, u64, u64) { return Norm(H(a), 65535, 0); }),
      // floats
      v("v_cvt_rpi_i32_f32", f, i,
        [](u64 a, u64, u64, u64) -> u64 {
          const double x = std::floor(static_cast<double>(F(a)) + 0.5);
          return F(a) != F(a) ? 0
                              : static_cast<uint32_t>(static_cast<int64_t>(
                                    std::min(std::max(x, -2147483648.0), 2147483647.0)));
        }),
      v("v_cvt_pknorm_i16_f32", f, i,
        [](u64 a, u64 b, u64, u64) { return Norm(F(a), 32767, -1) | Norm(F(b), 32767, -1) << 16; }),
      v("v_cvt_pknorm_u16_f32", f, i,
        [](u64 a, u64 b, u64, u64) { return Norm(F(a), 65535, 0) | Norm(F(b), 65535, 0) << 16; }),
      v("v_cvt_pknorm_i16_f16", h, i,
        [](u64 a, u64 b, u64, u64) { return Norm(H(a), 32767, -1) | Norm(H(b), 32767, -1) << 16; }),
      v("v_cvt_pknorm_u16_f16", h, i,
        [](u64 a, u64 b, u64, u64) { return Norm(H(a), 65535, 0) | Norm(H(b), 65535, 0) << 16; }),
      v("v_cvt_pkrtz_f16_f32", f, p,
        [](u64 a, u64 b, u64, u64) { return CutHalf(F(a)) | CutHalf(F(b)) << 16; }),
      // bytes
      v("v_msad_u8", i, i,
        [](u64 a, u64 b, u64 c, u64) { return (SumOfDifferences(a, b, true) + c) & 0xffffffff; }),
      v("v_qsad_pk_u16_u8", i, i, [](u64 a, u64 b, u64 c, u64) { return Quad(a, b, c, false); }),
      v("v_mqsad_pk_u16_u8", i, i, [](u64 a, u64 b, u64 c, u64) { return Quad(a, b, c, true); }),
      // packed
      v("v_pk_mad_i16", i, i, PACKED(x * y + z)),
      v("v_pk_add_i16", i, i, PACKED(x + y)),
      v("v_pk_sub_u16", i, i, PACKED(x - y)),
      v("v_pk_lshrrev_b16", i, i, PACKED(y >> (x & 15))),
      v("v_pk_min_i16", i, i, PACKED(Low16(std::min(S16(x), S16(y))))),
      v("v_pk_max_u16", i, i, PACKED(std::max(x, y))),
  };
}

}  // namespace mainarch::sim::isa::test
