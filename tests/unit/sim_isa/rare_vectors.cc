// SPDX-License-Identifier: MIT
//
// Expectations as in vectors.cc for VALU instructions that compilers rarely emit: 16-bit multiply
// and add in two roundings, division fix-up of halves, cube maps, argument reduction, the legacy
// forms of the transcendentals.
#include <algorithm>
#include <array>
#include <cmath>

#include "unit/sim_isa/vectors.h"

namespace mainarch::sim::isa::test {
namespace {

using u64 = uint64_t;
using u32 = uint32_t;

float F(u64 x) { return __builtin_bit_cast(float, static_cast<u32>(x)); }
u64 B(float x) { return __builtin_bit_cast(u32, x); }
double H(u64 x) {
  return static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(x)));
}
u64 BH(double x) { return __builtin_bit_cast(uint16_t, static_cast<_Float16>(x)); }
float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// The product is rounded to 16 bits before the sum.
u64 MadHalf(u64 a, u64 b, u64 c) { return BH(H(BH(H(a) * H(b))) + H(c)); }

// q, d, n: the quotient that the iteration found, denominator, numerator.
u64 FixupHalf(u64 q, u64 d, u64 n) {
  const double x = H(d), y = H(n), sign = std::signbit(x) != std::signbit(y) ? -1 : 1;
  if (x != x || y != y) return BH(NAN);
  if ((x == 0 && y == 0) || (std::isinf(x) && std::isinf(y))) return BH(NAN);
  if (x == 0 || std::isinf(y)) return BH(sign * INFINITY);
  if (std::isinf(x) || y == 0) return BH(sign * 0.0);
  return BH(std::copysign(H(q), sign));
}

double MinNum(double a, double b) {
  return a != a ? b : b != b ? a : (a < b || (a == b && std::signbit(a))) ? a : b;
}
// IEEE 754-2019: a NaN wins, -0 is below +0.
double Minimum(double a, double b) { return a != a || b != b ? NAN : MinNum(a, b); }
double Maximum(double a, double b) { return -Minimum(-a, -b); }
u64 MiddleHalf(u64 a, u64 b, u64 c) {
  const double x = H(a), y = H(b), z = H(c);
  if (x != x || y != y || z != z) return BH(MinNum(MinNum(x, y), z));
  double sorted[3] = {x, y, z};
  std::sort(sorted, sorted + 3, [](double p, double q) {
    return p < q || (p == q && std::signbit(p) && !std::signbit(q));
  });
  return BH(sorted[1]);
}
template <double (*kOf)(double, double)>
u64 ThreeHalves(u64 a, u64 b, u64 c) {
  return BH(kOf(kOf(H(a), H(b)), H(c))) | BH(kOf(kOf(H(a >> 16), H(b >> 16)), H(c >> 16))) << 16;
}

// Turns, not radians.
template <double (*kOf)(double)>
u64 OfTurns(u64 a) {
  const double x = H(a);
  return std::isfinite(x) ? BH(kOf(6.283185307179586 * std::remainder(x, 1.0))) : BH(NAN);
}

// The face of a cube that a direction points at, by its largest component; z before y before x.
struct Face {
  int axis;  // 0 x, 1 y, 2 z
  bool minus;
};
Face FaceOf(float x, float y, float z) {
  const float v[] = {std::fabs(x), std::fabs(y), std::fabs(z)};
  const float most = std::max(std::max(v[0], v[1]), v[2]);
  const int axis = v[2] == most ? 2 : v[1] == most ? 1 : 0;
  return {axis, (axis == 0 ? x : axis == 1 ? y : z) < 0};
}
bool AnyNan(u64 a, u64 b, u64 c) { return F(a) != F(a) || F(b) != F(b) || F(c) != F(c); }

// Bits of 2/pi after the binary point, the manual's 1201 of them: pi by Machin's formula in fixed
// point, then a long division bit by bit.
class TwoOverPi {
 public:
  static constexpr int kBits = 1201, kWords = 40;
  TwoOverPi() {
    const Number pi = Less(Times(Arctangent(5), 16), Times(Arctangent(239), 4));
    // 2 / pi: the remainder doubles at every step.
    Number rest = {};
    rest[0] = 2;
    for (int i = 0; i < kBits; ++i) {
      rest = Times(rest, 2);
      bits_[i] = !Below(rest, pi);
      if (bits_[i]) rest = Less(rest, pi);
    }
  }
  u64 Slice(int from) const {
    u64 r = 0;
    for (int i = from; i < from + 53; ++i) r = r << 1 | (i < kBits && bits_[i]);
    return r;
  }

 private:
  using Number = std::array<u32, kWords>;  // [0] is whole, the rest its fraction
  static Number Times(const Number& x, u32 by) {
    Number r;
    u64 carry = 0;
    for (int i = kWords; i-- > 0; carry >>= 32) r[i] = static_cast<u32>(carry += u64{x[i]} * by);
    return r;
  }
  static Number Over(const Number& x, u32 by) {
    Number r;
    u64 rest = 0;
    for (int i = 0; i < kWords; ++i) {
      rest = rest << 32 | x[i];
      r[i] = static_cast<u32>(rest / by);
      rest %= by;
    }
    return r;
  }
  static Number Less(const Number& x, const Number& y) {
    Number r;
    int64_t borrow = 0;
    for (int i = kWords; i-- > 0; borrow >>= 32)
      r[i] = static_cast<u32>(borrow += int64_t{x[i]} - y[i]);
    return r;
  }
  static Number Plus(const Number& x, const Number& y) {
    Number r;
    u64 carry = 0;
    for (int i = kWords; i-- > 0; carry >>= 32) r[i] = static_cast<u32>(carry += u64{x[i]} + y[i]);
    return r;
  }
  static bool Below(const Number& x, const Number& y) { return x < y; }
  // 1/n - 1/3n^3 + 1/5n^5 - ...
  static Number Arctangent(u32 n) {
    Number power = {}, sum = {};
    power[0] = 1;
    power = Over(power, n);
    for (u32 k = 1; power != Number{}; k += 2, power = Over(Over(power, n), n)) {
      const Number term = Over(power, k);
      sum = k % 4 == 1 ? Plus(sum, term) : Less(sum, term);
    }
    return sum;
  }
  bool bits_[kBits];
};

u64 TrigPreop(u64 a, u64 b) {
  static const TwoOverPi kTable;
  const int exponent = static_cast<int>(a >> 52 & 2047);
  int shift = static_cast<int>(b & 31) * 53;
  if (exponent > 1077) shift += exponent - 1077;
  const int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
  return __builtin_bit_cast(u64, std::ldexp(static_cast<double>(kTable.Slice(shift)), scale));
}

}  // namespace

std::vector<Vector> RareVectors() {
  constexpr Kind f = Kind::kF32, g = Kind::kF64, h = Kind::kF16, p = Kind::kF16Pair,
                 q = Kind::kBf16Pair;
  return {
      {"v_div_fixup_f16", h, h, [](u64 a, u64 b, u64 c, u64) { return FixupHalf(a, b, c); }},
      {"v_div_fixup_legacy_f16", h, h, [](u64 a, u64 b, u64 c, u64) { return FixupHalf(a, b, c); }},
      {"v_mad_f16", h, h, [](u64 a, u64 b, u64 c, u64) { return MadHalf(a, b, c); }},
      {"v_mad_legacy_f16", h, h, [](u64 a, u64 b, u64 c, u64) { return MadHalf(a, b, c); }},
      {"v_mac_f16", h, h, [](u64 a, u64 b, u64, u64 d) { return MadHalf(a, b, d); }},
      {"v_med3_f16", h, h, [](u64 a, u64 b, u64 c, u64) { return MiddleHalf(a, b, c); }},
      {"v_sin_f16", h, h, [](u64 a, u64, u64, u64) { return OfTurns<std::sin>(a); }, 1e-3},
      {"v_cos_f16", h, h, [](u64 a, u64, u64, u64) { return OfTurns<std::cos>(a); }, 1e-3},
      {"v_pk_minimum3_f16", p, p,
       [](u64 a, u64 b, u64 c, u64) { return ThreeHalves<Minimum>(a, b, c); }},
      {"v_pk_maximum3_f16", p, p,
       [](u64 a, u64 b, u64 c, u64) { return ThreeHalves<Maximum>(a, b, c); }},
      // Two products added one after the other, each rounded once; c is a small whole number.
      {"v_dot2_f32_bf16", q, f,
       [](u64 a, u64 b, u64 c, u64) {
         const float low = std::fma(F(a << 16), F(b << 16), F(c));
         return B(std::fma(F(a & 0xffff0000), F(b & 0xffff0000), low));
       }},
      {"v_exp_legacy_f32", f, f,
       [](u64 a, u64, u64, u64) {
         return B(Flushed(static_cast<float>(std::exp2(static_cast<double>(F(a))))));
       },
       2.4e-7},
      {"v_log_legacy_f32", f, f,
       [](u64 a, u64, u64, u64) {
         return B(static_cast<float>(std::log2(static_cast<double>(Flushed(F(a))))));
       },
       2.4e-7},
      {"v_rcp_iflag_f32", f, f,
       [](u64 a, u64, u64, u64) { return B(Flushed(static_cast<float>(1.0 / Flushed(F(a))))); },
       2.4e-7},
      {"v_trig_preop_f64", g, g, [](u64 a, u64 b, u64, u64) { return TrigPreop(a, b); }},
      {"v_cubeid_f32", f, f,
       [](u64 a, u64 b, u64 c, u64) {
         const Face face = FaceOf(F(a), F(b), F(c));
         return AnyNan(a, b, c) ? kAnything : B(static_cast<float>(2 * face.axis + face.minus));
       }},
      {"v_cubema_f32", f, f,
       [](u64 a, u64 b, u64 c, u64) {
         const float v[] = {F(a), F(b), F(c)};
         return AnyNan(a, b, c) ? kAnything : B(2 * v[FaceOf(v[0], v[1], v[2]).axis]);
       }},
      {"v_cubesc_f32", f, f,
       [](u64 a, u64 b, u64 c, u64) {
         const Face face = FaceOf(F(a), F(b), F(c));
         if (AnyNan(a, b, c)) return kAnything;
         if (face.axis == 1) return B(F(a));
         return face.axis == 2 ? B(face.minus ? -F(a) : F(a)) : B(face.minus ? F(c) : -F(c));
       }},
      {"v_cubetc_f32", f, f,
       [](u64 a, u64 b, u64 c, u64) {
         const Face face = FaceOf(F(a), F(b), F(c));
         if (AnyNan(a, b, c)) return kAnything;
         return face.axis == 1 ? B(face.minus ? -F(c) : F(c)) : B(-F(b));
       }},
  };
}

}  // namespace mainarch::sim::isa::test
