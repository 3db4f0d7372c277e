// SPDX-License-Identifier: MIT
#include "unit/sim_isa/vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mainarch::sim::isa::test {
namespace {

using I = __int128;
using u64 = uint64_t;

I Signed(u64 x, int bits) {
  const I v = static_cast<I>(x & ((static_cast<unsigned __int128>(1) << bits) - 1));
  return v >> (bits - 1) & 1 ? v - (static_cast<I>(1) << bits) : v;
}
I Limit(I x, I low, I high) { return x < low ? low : x > high ? high : x; }
u64 Low(I x, int bits) {
  return static_cast<u64>(x) & (bits == 64 ? ~u64{0} : (u64{1} << bits) - 1);
}

float F(u64 x) {
  const uint32_t bits = static_cast<uint32_t>(x);
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
u64 B(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}
double D(u64 x) {
  double d;
  std::memcpy(&d, &x, 8);
  return d;
}
u64 BD(double d) {
  u64 x;
  std::memcpy(&x, &d, 8);
  return x;
}
_Float16 H(u64 x) {
  const uint16_t bits = static_cast<uint16_t>(x);
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return h;
}
u64 BH(_Float16 h) {
  uint16_t bits;
  std::memcpy(&bits, &h, 2);
  return bits;
}
// minNum and maxNum with -0 below +0.
template <class T>
T MinNum(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(static_cast<double>(a)) ? a : b;
  return a < b ? a : b;
}
template <class T>
T MaxNum(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(static_cast<double>(a)) ? b : a;
  return a > b ? a : b;
}

#define LAMBDA [](u64 a, u64 b, u64 c, u64 d)->u64
#define USED (void)a, (void)b, (void)c, (void)d
#define INT(name, ...)                        \
  {name, Kind::kInt, Kind::kInt, LAMBDA{USED; \
  return (__VA_ARGS__);                       \
  }                                           \
  }

}  // namespace

std::vector<Vector> IntegerVectors() {
  return {
      INT("v_add_u32", Low(I(a) + I(b), 32)),
      INT("v_sub_u32", Low(I(a) - I(b), 32)),
      INT("v_subrev_u32", Low(I(b) - I(a), 32)),
      INT("v_add_i32", Low(I(a) + I(b), 32)),
      INT("v_sub_i32", Low(I(a) - I(b), 32)),
      INT("v_mul_i32_i24", Low(Signed(a, 24) * Signed(b, 24), 32)),
      INT("v_mul_hi_i32_i24", Low(Signed(a, 24) * Signed(b, 24) >> 32, 32)),
      INT("v_mul_u32_u24", Low(I(a & 0xffffff) * I(b & 0xffffff), 32)),
      INT("v_mul_hi_u32_u24", Low(I(a & 0xffffff) * I(b & 0xffffff) >> 32, 32)),
      INT("v_min_i32", Low(std::min(Signed(a, 32), Signed(b, 32)), 32)),
      INT("v_max_i32", Low(std::max(Signed(a, 32), Signed(b, 32)), 32)),
      INT("v_min_u32", std::min(a, b)),
      INT("v_max_u32", std::max(a, b)),
      INT("v_lshrrev_b32", b >> (a % 32)),
      INT("v_ashrrev_i32", Low(Signed(b, 32) >> (a % 32), 32)),
      INT("v_lshlrev_b32", Low(I(b) << (a % 32), 32)),
      INT("v_and_b32", a & b),
      INT("v_or_b32", a | b),
      INT("v_xor_b32", a ^ b),
      INT("v_xnor_b32", Low(~I(a ^ b), 32)),
      INT("v_not_b32", Low(~I(a), 32)),
      INT("v_mov_b32", a),
      INT("v_mov_b64", a),
      INT("v_bfrev_b32",
          [a] {
            u64 r = 0;
            for (int i = 0; i < 32; ++i)
              if (a >> i & 1) r |= u64{1} << (31 - i);
            return r;
          }()),
      INT("v_ffbh_u32",
          [a] {
            for (int i = 31; i >= 0; --i)
              if (a >> i & 1) return u64(31 - i);
            return u64{0xffffffff};
          }()),
      INT("v_ffbl_b32",
          [a] {
            for (int i = 0; i < 32; ++i)
              if (a >> i & 1) return u64(i);
            return u64{0xffffffff};
          }()),
      INT("v_ffbh_i32",
          [a] {
            for (int i = 30; i >= 0; --i)
              if ((a >> i & 1) != (a >> 31 & 1)) return u64(31 - i);
            return u64{0xffffffff};
          }()),
      INT("v_mul_lo_u32", Low(I(a) * I(b), 32)),
      INT("v_mul_hi_u32", Low(I(a) * I(b) >> 32, 32)),
      INT("v_mul_hi_i32", Low(Signed(a, 32) * Signed(b, 32) >> 32, 32)),
      INT("v_lshlrev_b64", Low(I(static_cast<unsigned __int128>(b) << (a % 64)), 64)),
      INT("v_lshrrev_b64", b >> (a % 64)),
      INT("v_ashrrev_i64", Low(Signed(b, 64) >> (a % 64), 64)),
      INT("v_bfm_b32", Low(((I(1) << (a % 32)) - 1) << (b % 32), 32)),
      INT("v_bcnt_u32_b32",
          [a, b] {
            u64 n = b;
            for (int i = 0; i < 32; ++i) n += a >> i & 1;
            return n & 0xffffffff;
          }()),
      INT("v_mad_i32_i24", Low(Signed(a, 24) * Signed(b, 24) + I(c), 32)),
      INT("v_mad_u32_u24", Low(I(a & 0xffffff) * I(b & 0xffffff) + I(c), 32)),
      INT("v_bfe_u32",
          [a, b, c] {
            u64 r = 0;
            for (u64 i = 0; i < c % 32; ++i)
              if (b % 32 + i < 32) r |= (a >> (b % 32 + i) & 1) << i;
            return r;
          }()),
      INT("v_bfe_i32",
          [a, b, c] {
            const int width = static_cast<int>(c % 32), offset = static_cast<int>(b % 32);
            if (width == 0) return u64{0};
            if (offset + width >= 32) return Low(Signed(a, 32) >> offset, 32);
            return Low(Signed(a >> offset, width), 32);
          }()),
      INT("v_bfi_b32", ((a & b) | (~a & c)) & 0xffffffff),
      INT("v_alignbit_b32", Low(I(a << 32 | b) >> (c % 32), 32)),
      INT("v_alignbyte_b32", Low(I(a << 32 | b) >> (8 * (c % 4)), 32)),
      INT("v_lerp_u8",
          [a, b, c] {
            u64 r = 0;
            for (int i = 0; i < 32; i += 8)
              r |= (((a >> i & 255) + (b >> i & 255) + (c >> i & 1)) / 2) << i;
            return r;
          }()),
      INT("v_min3_i32", Low(std::min({Signed(a, 32), Signed(b, 32), Signed(c, 32)}), 32)),
      INT("v_max3_i32", Low(std::max({Signed(a, 32), Signed(b, 32), Signed(c, 32)}), 32)),
      INT("v_min3_u32", std::min({a, b, c})),
      INT("v_max3_u32", std::max({a, b, c})),
      INT("v_med3_u32", std::max(std::min(a, b), std::min(std::max(a, b), c))),
      INT("v_med3_i32",
          [a, b, c] {
            const I x = Signed(a, 32), y = Signed(b, 32), z = Signed(c, 32);
            return Low(x + y + z - std::min({x, y, z}) - std::max({x, y, z}), 32);
          }()),
      INT("v_sad_u8",
          [a, b, c] {
            u64 s = c;
            for (int i = 0; i < 32; i += 8)
              s += std::llabs(static_cast<long long>(a >> i & 255) -
                              static_cast<long long>(b >> i & 255));
            return s & 0xffffffff;
          }()),
      INT("v_sad_hi_u8",
          [a, b, c] {
            u64 s = 0;
            for (int i = 0; i < 32; i += 8)
              s += std::llabs(static_cast<long long>(a >> i & 255) -
                              static_cast<long long>(b >> i & 255));
            return ((s << 16) + c) & 0xffffffff;
          }()),
      INT("v_sad_u16",
          [a, b, c] {
            u64 s = c;
            for (int i = 0; i < 32; i += 16)
              s += std::llabs(static_cast<long long>(a >> i & 65535) -
                              static_cast<long long>(b >> i & 65535));
            return s & 0xffffffff;
          }()),
      INT("v_sad_u32", Low((a > b ? I(a) - I(b) : I(b) - I(a)) + I(c), 32)),
      INT("v_perm_b32",
          [a, b, c] {
            const u64 data = a << 32 | b;
            u64 r = 0;
            for (int i = 0; i < 4; ++i) {
              const u64 s = c >> (8 * i) & 255;
              u64 byte;
              if (s >= 13)
                byte = 255;
              else if (s == 12)
                byte = 0;
              else if (s >= 8)
                byte = data >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
              else
                byte = data >> (8 * s) & 255;
              r |= byte << (8 * i);
            }
            return r;
          }()),
      INT("v_xad_u32", Low(I(a ^ b) + I(c), 32)),
      INT("v_lshl_add_u32", Low((I(a) << (b % 32)) + I(c), 32)),
      INT("v_add_lshl_u32", Low(I((a + b) & 0xffffffff) << (c % 32), 32)),
      INT("v_add3_u32", Low(I(a) + I(b) + I(c), 32)),
      INT("v_lshl_or_b32", Low(I(a) << (b % 32), 32) | c),
      INT("v_and_or_b32", (a & b) | c),
      INT("v_or3_b32", a | b | c),
      INT("v_lshl_add_u64", Low(I((static_cast<unsigned __int128>(a) << (b % 8)) + c), 64)),
      INT("v_mad_u32_u16", Low(I(a & 0xffff) * I(b & 0xffff) + I(c), 32)),
      INT("v_mad_i32_i16", Low(Signed(a, 16) * Signed(b, 16) + I(c), 32)),
      INT("v_add_u16", Low(I(a) + I(b), 16)),
      INT("v_sub_u16", Low(I(a) - I(b), 16)),
      INT("v_subrev_u16", Low(I(b) - I(a), 16)),
      INT("v_mul_lo_u16", Low(I(a) * I(b), 16)),
      INT("v_lshlrev_b16", Low(I(b & 0xffff) << (a % 16), 16)),
      INT("v_lshrrev_b16", (b & 0xffff) >> (a % 16)),
      INT("v_ashrrev_i16", Low(Signed(b, 16) >> (a % 16), 16)),
      INT("v_max_u16", std::max(a & 0xffff, b & 0xffff)),
      INT("v_min_u16", std::min(a & 0xffff, b & 0xffff)),
      INT("v_max_i16", Low(std::max(Signed(a, 16), Signed(b, 16)), 16)),
      INT("v_min_i16", Low(std::min(Signed(a, 16), Signed(b, 16)), 16)),
      INT("v_mad_legacy_u16", Low(I(a & 0xffff) * I(b & 0xffff) + I(c & 0xffff), 16)),
      INT("v_mad_legacy_i16", Low(Signed(a, 16) * Signed(b, 16) + Signed(c, 16), 16)),
      INT("v_mad_u16", Low(I(a & 0xffff) * I(b & 0xffff) + I(c & 0xffff), 16) | (d & 0xffff0000)),
      INT("v_mad_i16", Low(Signed(a, 16) * Signed(b, 16) + Signed(c, 16), 16) | (d & 0xffff0000)),
      INT("v_add_i16", Low(I(a) + I(b), 16) | (d & 0xffff0000)),
      INT("v_sub_i16", Low(I(a) - I(b), 16) | (d & 0xffff0000)),
      INT("v_sat_pk_u8_i16",
          Low(Limit(Signed(a, 16), 0, 255), 8) | Low(Limit(Signed(a >> 16, 16), 0, 255), 8) << 8),
      INT("v_cvt_pk_u16_u32", std::min<u64>(a, 65535) | std::min<u64>(b, 65535) << 16),
      INT("v_cvt_pk_i16_i32", Low(Limit(Signed(a, 32), -32768, 32767), 16) |
                                  Low(Limit(Signed(b, 32), -32768, 32767), 16) << 16),
      INT("v_prng_b32", ((a << 1) & 0xffffffff) ^ (a >> 31 & 1 ? 197 : 0)),
      INT("v_ashr_pk_i8_i32", Low(Limit(Signed(a, 32) >> (c % 32), -128, 127), 8) |
                                  Low(Limit(Signed(b, 32) >> (c % 32), -128, 127), 8) << 8),
      INT("v_ashr_pk_u8_i32", Low(Limit(Signed(a, 32) >> (c % 32), 0, 255), 8) |
                                  Low(Limit(Signed(b, 32) >> (c % 32), 0, 255), 8) << 8),
      INT("v_dot4_i32_i8",
          [a, b, c] {
            I s = Signed(c, 32);
            for (int i = 0; i < 32; i += 8) s += Signed(a >> i, 8) * Signed(b >> i, 8);
            return Low(s, 32);
          }()),
      INT("v_dot4_u32_u8",
          [a, b, c] {
            I s = I(c);
            for (int i = 0; i < 32; i += 8) s += I(a >> i & 255) * I(b >> i & 255);
            return Low(s, 32);
          }()),
      INT("v_dot8_i32_i4",
          [a, b, c] {
            I s = Signed(c, 32);
            for (int i = 0; i < 32; i += 4) s += Signed(a >> i, 4) * Signed(b >> i, 4);
            return Low(s, 32);
          }()),
      INT("v_dot8_u32_u4",
          [a, b, c] {
            I s = I(c);
            for (int i = 0; i < 32; i += 4) s += I(a >> i & 15) * I(b >> i & 15);
            return Low(s, 32);
          }()),
      INT("v_dot2_i32_i16", Low(Signed(c, 32) + Signed(a, 16) * Signed(b, 16) +
                                    Signed(a >> 16, 16) * Signed(b >> 16, 16),
                                32)),
      INT("v_dot2_u32_u16",
          Low(I(c) + I(a & 0xffff) * I(b & 0xffff) + I(a >> 16) * I(b >> 16), 32)),
      INT("v_pk_add_u16", Low(I(a) + I(b), 16) | Low(I(a >> 16) + I(b >> 16), 16) << 16),
      INT("v_pk_sub_i16", Low(I(a) - I(b), 16) | Low(I(a >> 16) - I(b >> 16), 16) << 16),
      INT("v_pk_mul_lo_u16",
          Low(I(a & 0xffff) * I(b & 0xffff), 16) | Low(I(a >> 16) * I(b >> 16), 16) << 16),
      INT("v_pk_mad_u16", Low(I(a & 0xffff) * I(b & 0xffff) + I(c), 16) |
                              Low(I(a >> 16) * I(b >> 16) + I(c >> 16), 16) << 16),
      INT("v_pk_max_i16", Low(std::max(Signed(a, 16), Signed(b, 16)), 16) |
                              Low(std::max(Signed(a >> 16, 16), Signed(b >> 16, 16)), 16) << 16),
      INT("v_pk_min_u16", std::min(a & 0xffff, b & 0xffff) | std::min(a >> 16, b >> 16) << 16),
      INT("v_pk_lshlrev_b16",
          Low(I(b & 0xffff) << (a % 16), 16) | Low(I(b >> 16) << (a >> 16 & 15), 16) << 16),
      INT("v_pk_ashrrev_i16", Low(Signed(b, 16) >> (a % 16), 16) |
                                  Low(Signed(b >> 16, 16) >> (a >> 16 & 15), 16) << 16),
  };
}

#define F32(name, ...)                                                 \
  {name, Kind::kF32, Kind::kF32, LAMBDA{USED;                          \
  [[maybe_unused]] const float x = F(a), y = F(b), z = F(c), w = F(d); \
  return B((__VA_ARGS__));                                             \
  }                                                                    \
  }
#define F32T(name, tolerance, ...)                           \
  {name, Kind::kF32, Kind::kF32, LAMBDA{USED;                \
  [[maybe_unused]] const float x = F(a), y = F(b), z = F(c); \
  return B((__VA_ARGS__));                                   \
  }                                                          \
  , tolerance                                                \
  }
#define F64(name, ...)                                                  \
  {name, Kind::kF64, Kind::kF64, LAMBDA{USED;                           \
  [[maybe_unused]] const double x = D(a), y = D(b), z = D(c), w = D(d); \
  return BD((__VA_ARGS__));                                             \
  }                                                                     \
  }
#define F64T(name, tolerance, ...)            \
  {name, Kind::kF64, Kind::kF64, LAMBDA{USED; \
  [[maybe_unused]] const double x = D(a);     \
  return BD((__VA_ARGS__));                   \
  }                                           \
  , tolerance                                 \
  }
#define F16(name, ...)                                                                        \
  {name, Kind::kF16, Kind::kF16, LAMBDA{USED;                                                 \
  [[maybe_unused]] const double x = static_cast<double>(H(a)), y = static_cast<double>(H(b)), \
                                z = static_cast<double>(H(c));                                \
  return BH(static_cast<_Float16>((__VA_ARGS__)));                                            \
  }                                                                                           \
  }

namespace {
float FlushF(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
double Fract(double x, double largest) { return std::min(x - std::floor(x), largest); }
float Bf(u64 x) { return F((x & 0xffff) << 16); }
}  // namespace

std::vector<Vector> FloatVectors() {
  return {
      F32("v_add_f32", x + y), F32("v_sub_f32", x - y), F32("v_subrev_f32", y - x),
      F32("v_mul_f32", static_cast<float>(static_cast<double>(x) * y)),
      F32("v_mul_legacy_f32", x == 0 || y == 0 ? 0.0f : x * y), F32("v_fma_f32", std::fma(x, y, z)),
      F32("v_fmac_f32", std::fma(x, y, w)), F32("v_min_f32", MinNum(x, y)),
      F32("v_max_f32", MaxNum(x, y)), F32("v_min3_f32", MinNum(MinNum(x, y), z)),
      F32("v_max3_f32", MaxNum(MaxNum(x, y), z)),
      F32("v_med3_f32", x != x || y != y || z != z ? MinNum(MinNum(x, y), z)
                                                   : MaxNum(MinNum(x, y), MinNum(MaxNum(x, y), z))),
      F32("v_minimum3_f32", x != x || y != y || z != z ? NAN : MinNum(MinNum(x, y), z)),
      F32("v_maximum3_f32", x != x || y != y || z != z ? NAN : MaxNum(MaxNum(x, y), z)),
      F32("v_trunc_f32", std::trunc(x)), F32("v_ceil_f32", std::ceil(x)),
      F32("v_rndne_f32", std::nearbyint(x)), F32("v_floor_f32", std::floor(x)),
      F32("v_fract_f32", static_cast<float>(Fract(x, 0x1.fffffep-1))),
      F32T("v_exp_f32", 2.4e-7, FlushF(static_cast<float>(std::exp2(static_cast<double>(x))))),
      F32T("v_log_f32", 2.4e-7, static_cast<float>(std::log2(static_cast<double>(FlushF(x))))),
      F32T("v_rcp_f32", 2.4e-7, FlushF(static_cast<float>(1.0 / FlushF(x)))),
      F32T("v_rsq_f32", 2.4e-7,
           static_cast<float>(1.0 / std::sqrt(static_cast<double>(FlushF(x))))),
      F32T("v_sqrt_f32", 2.4e-7, static_cast<float>(std::sqrt(static_cast<double>(FlushF(x))))),
      {"v_sin_f32", Kind::kF32, Kind::kF32, LAMBDA{USED;
  const double t = F(a);
  return B(std::isfinite(t)
               ? static_cast<float>(std::sin(6.283185307179586 * std::remainder(t, 1.0)))
               : NAN);
}
, 1e-6
}  // namespace mainarch::sim::isa::test
, {"v_cos_f32", Kind::kF32, Kind::kF32, LAMBDA{USED;
const double t = F(a);
return B(std::isfinite(t) ? static_cast<float>(std::cos(6.283185307179586 * std::remainder(t, 1.0)))
                          : NAN);
}
, 1e-6
}
, {"v_frexp_exp_i32_f32", Kind::kF32, Kind::kInt, LAMBDA{USED;
int e = 0;
if (std::isfinite(F(a)) && F(a) != 0) std::frexp(F(a), &e);
return Low(e, 32);
}
}
,
    F32("v_frexp_mant_f32",
        [x] {
          int e;
          return std::isfinite(x) ? std::frexp(x, &e) : x;
        }()),
    {"v_ldexp_f32", Kind::kF32, Kind::kF32, LAMBDA{USED;
return B(std::ldexp(F(a), static_cast<int>(static_cast<int32_t>(b))));
}
}
, {"v_ldexp_f64", Kind::kF64, Kind::kF64, LAMBDA{USED;
return BD(std::ldexp(D(a), static_cast<int>(static_cast<int32_t>(b))));
}
}
, F64("v_add_f64", x + y), F64("v_mul_f64", x* y), F64("v_min_f64", MinNum(x, y)),
    F64("v_max_f64", MaxNum(x, y)), F64("v_fma_f64", std::fma(x, y, z)),
    F64("v_fmac_f64", std::fma(x, y, w)), F64("v_trunc_f64", std::trunc(x)),
    F64("v_ceil_f64", std::ceil(x)), F64("v_rndne_f64", std::nearbyint(x)),
    F64("v_floor_f64", std::floor(x)), F64("v_fract_f64", Fract(x, 0x1.fffffffffffffp-1)),
    F64T("v_rcp_f64", 1e-14, 1 / x), F64T("v_rsq_f64", 1e-14, 1 / std::sqrt(x)),
    F64T("v_sqrt_f64", 1e-14, std::sqrt(x)),
    F64("v_frexp_mant_f64",
        [x] {
          int e;
          return std::isfinite(x) ? std::frexp(x, &e) : x;
        }()),
    {"v_frexp_exp_i32_f64", Kind::kF64, Kind::kInt, LAMBDA{USED;
int e = 0;
if (std::isfinite(D(a)) && D(a) != 0) std::frexp(D(a), &e);
return Low(e, 32);
}
}
, F16("v_add_f16", x + y), F16("v_sub_f16", x - y), F16("v_subrev_f16", y - x),
    F16("v_mul_f16", x* y), F16("v_min_f16", MinNum(x, y)), F16("v_max_f16", MaxNum(x, y)),
    F16("v_fma_legacy_f16", std::fma(x, y, z)), F16("v_floor_f16", std::floor(x)),
    F16("v_ceil_f16", std::ceil(x)), F16("v_trunc_f16", std::trunc(x)),
    F16("v_rndne_f16", std::nearbyint(x)), F16("v_rcp_f16", 1 / x), F16("v_sqrt_f16", std::sqrt(x)),
    F16("v_rsq_f16", 1 / std::sqrt(x)),
    {"v_pk_add_f16", Kind::kF16Pair, Kind::kF16Pair, LAMBDA{USED;
return BH(H(a) + H(b)) | BH(H(a >> 16) + H(b >> 16)) << 16;
}
}
, {"v_pk_mul_f16", Kind::kF16Pair, Kind::kF16Pair, LAMBDA{USED;
return BH(H(a) * H(b)) | BH(H(a >> 16) * H(b >> 16)) << 16;
}
}
, {"v_pk_fma_f16", Kind::kF16Pair, Kind::kF16Pair, LAMBDA{USED;
const auto f = [](u64 p, u64 q, u64 r) {
  return BH(static_cast<_Float16>(
      std::fma(static_cast<double>(H(p)), static_cast<double>(H(q)), static_cast<double>(H(r)))));
};
return f(a, b, c) | f(a >> 16, b >> 16, c >> 16) << 16;
}
}
, {"v_pk_max_f16", Kind::kF16Pair, Kind::kF16Pair, LAMBDA{USED;
return BH(MaxNum(H(a), H(b))) | BH(MaxNum(H(a >> 16), H(b >> 16))) << 16;
}
}
, {"v_pk_min_f16", Kind::kF16Pair, Kind::kF16Pair, LAMBDA{USED;
return BH(MinNum(H(a), H(b))) | BH(MinNum(H(a >> 16), H(b >> 16))) << 16;
}
}
, {"v_dot2c_f32_bf16", Kind::kBf16Pair, Kind::kF32, LAMBDA{USED;
return B(static_cast<float>(static_cast<double>(Bf(a)) * Bf(b) +
                            static_cast<double>(Bf(a >> 16)) * Bf(b >> 16) + F(d)));
}
, 1e-5
}
, F32("v_div_fixup_f32", [x, y, z] {
  if (z != z || y != y) return NAN;
  if ((y == 0 && z == 0) || (std::isinf(y) && std::isinf(z))) return NAN;
  const float s = std::signbit(y) != std::signbit(z) ? -1.0f : 1.0f;
  if (y == 0 || std::isinf(z)) return s * INFINITY;
  if (std::isinf(y) || z == 0) return s * 0.0f;
  if (static_cast<int>(B(z) >> 23 & 255) - static_cast<int>(B(y) >> 23 & 255) < -150) return s * 0.0f;
  return x != x ? s * INFINITY : std::copysign(x, s);
}()),
}
;
}

#define CVT(name, in, out, ...) \
  {name, in, out, LAMBDA{USED;  \
  return (__VA_ARGS__);         \
  }                             \
  }

std::vector<Vector> ConversionVectors() {
  constexpr Kind i = Kind::kInt, f = Kind::kF32, g = Kind::kF64, h = Kind::kF16;
  return {
      CVT("v_cvt_i32_f32", f, i,
          F(a) != F(a)
              ? 0
              : Low(static_cast<int32_t>(std::clamp<double>(F(a), -2147483648.0, 2147483647.0)),
                    32)),
      CVT("v_cvt_u32_f32", f, i,
          F(a) != F(a) ? 0 : static_cast<u64>(std::clamp<double>(F(a), 0, 4294967295.0))),
      CVT("v_cvt_i32_f64", g, i,
          D(a) != D(a)
              ? 0
              : Low(static_cast<int32_t>(std::clamp<double>(D(a), -2147483648.0, 2147483647.0)),
                    32)),
      CVT("v_cvt_u32_f64", g, i,
          D(a) != D(a) ? 0 : static_cast<u64>(std::clamp<double>(D(a), 0, 4294967295.0))),
      CVT("v_cvt_f32_i32", i, f, B(static_cast<float>(static_cast<int32_t>(a)))),
      CVT("v_cvt_f32_u32", i, f, B(static_cast<float>(static_cast<uint32_t>(a)))),
      CVT("v_cvt_f64_i32", i, g, BD(static_cast<int32_t>(a))),
      CVT("v_cvt_f64_u32", i, g, BD(static_cast<uint32_t>(a))),
      CVT("v_cvt_f32_f64", g, f, B(static_cast<float>(D(a)))), CVT("v_cvt_f64_f32", f, g, BD(F(a))),
      CVT("v_cvt_f16_f32", f, h, BH(static_cast<_Float16>(F(a)))),
      CVT("v_cvt_f32_f16", h, f, B(static_cast<float>(H(a)))),
      CVT("v_cvt_f32_ubyte0", i, f, B(static_cast<float>(a & 255))),
      CVT("v_cvt_f32_ubyte1", i, f, B(static_cast<float>(a >> 8 & 255))),
      CVT("v_cvt_f32_ubyte2", i, f, B(static_cast<float>(a >> 16 & 255))),
      CVT("v_cvt_f32_ubyte3", i, f, B(static_cast<float>(a >> 24 & 255))),
      CVT("v_cvt_f32_bf16", i, f, B(Bf(a))),
      CVT("v_cvt_f16_u16", i, h, BH(static_cast<_Float16>(a & 0xffff))),
      CVT("v_cvt_f16_i16", i, h, BH(static_cast<_Float16>(static_cast<int16_t>(a)))),
      CVT("v_cvt_u16_f16", h, i,
          H(a) != H(a) ? 0
                       : static_cast<u64>(std::clamp<double>(static_cast<double>(H(a)), 0, 65535))),
      CVT("v_cvt_i16_f16", h, i,
          H(a) != H(a)
              ? 0
              : Low(static_cast<int>(std::clamp<double>(static_cast<double>(H(a)), -32768, 32767)),
                    16)),
      CVT("v_cvt_off_f32_i4", i, f, B(static_cast<float>(Signed(a, 4)) / 16)),
      CVT("v_cvt_flr_i32_f32", f, i,
          F(a) != F(a) ? 0
                       : Low(static_cast<int32_t>(
                                 std::clamp<double>(std::floor(F(a)), -2147483648.0, 2147483647.0)),
                             32)),
      CVT("v_cvt_pk_f16_f32", f, Kind::kF16Pair,
          BH(static_cast<_Float16>(F(a))) | BH(static_cast<_Float16>(F(b))) << 16),
      CVT("v_pack_b32_f16", i, i, (a & 0xffff) | (b & 0xffff) << 16),
      {"v_cvt_pk_bf16_f32", f, Kind::kBf16Pair, LAMBDA{USED;
  // The nearest of the two neighbours, ties to the even one, by distance in double.
  const auto round = [](float x) -> u64 {
    if (x != x) return 0x7fc0;
    const u64 low = B(x) >> 16, high = low + 1;
    if (std::isinf(x)) return low;
    const double below = std::fabs(static_cast<double>(x) - Bf(low));
    const double step = std::isinf(Bf(high)) ? std::ldexp(1.0, 120)
                                             : std::fabs(static_cast<double>(Bf(high)) - Bf(low));
    return 2 * below < step || (2 * below == step && low % 2 == 0) ? low : high;
  };
  return round(F(a)) | round(F(b)) << 16;
}
}
,
}
;
}

namespace {
using Out = ScalarVector::Out;
#define SC(name, wd, wa, wb, ...)                      \
  {name, wd, wa, wb, [](u64 a, u64 b, bool s) -> Out { \
     (void)a, (void)b, (void)s;                        \
     __VA_ARGS__                                       \
   }}
#define LOGIC(name, expression)                                                           \
  SC(name "_b32", 1, 1, 1, const u64 r = Low(I(expression), 32); return Out{r, r != 0};), \
      SC(name "_b64", 2, 2, 2, const u64 r = expression; return Out{r, r != 0};)
bool Fits(I x, int bits) { return x >= -(I(1) << (bits - 1)) && x < (I(1) << (bits - 1)); }
u64 Field(u64 x, u64 spec, int bits, bool sign) {
  const int offset = static_cast<int>(spec % static_cast<u64>(bits)),
            width = static_cast<int>(spec >> 16 & 127);
  if (width == 0) return 0;
  const I all = sign ? Signed(x, bits) : I(x);
  const I shifted = all >> offset;
  if (width >= bits) return Low(shifted, bits);
  return Low(sign ? Signed(Low(shifted, 64), width) : I(Low(shifted, width)), bits);
}
}  // namespace

std::vector<ScalarVector> ScalarVectors() {
  return {
    SC("s_add_u32", 1, 1, 1, return Out{Low(I(a) + I(b), 32), I(a) + I(b) > 0xffffffffLL};),
        SC("s_sub_u32", 1, 1, 1, return Out{Low(I(a) - I(b), 32), a < b};),
        SC("s_add_i32", 1, 1, 1, const I r = Signed(a, 32) + Signed(b, 32);
           return Out{Low(r, 32), !Fits(r, 32)};),
        SC("s_sub_i32", 1, 1, 1, const I r = Signed(a, 32) - Signed(b, 32);
           return Out{Low(r, 32), !Fits(r, 32)};),
        SC("s_addc_u32", 1, 1, 1, const I r = I(a) + I(b) + s;
           return Out{Low(r, 32), r > 0xffffffffLL};),
        SC("s_subb_u32", 1, 1, 1, const I r = I(a) - I(b) - s; return Out{Low(r, 32), r < 0};),
        SC("s_min_i32", 1, 1, 1, const bool l = Signed(a, 32) < Signed(b, 32);
           return Out{l ? a : b, l};),
        SC("s_min_u32", 1, 1, 1, return Out{a < b ? a : b, a < b};),
        SC("s_max_i32", 1, 1, 1, const bool g = Signed(a, 32) >= Signed(b, 32);
           return Out{g ? a : b, g};),
        SC("s_max_u32", 1, 1, 1, return Out{a >= b ? a : b, a >= b};),
        SC("s_cselect_b32", 1, 1, 1, return Out{s ? a : b, 2};),
        SC("s_cselect_b64", 2, 2, 2, return Out{s ? a : b, 2};), LOGIC("s_and", a & b),
        LOGIC("s_or", a | b), LOGIC("s_xor", a ^ b), LOGIC("s_andn2", a & ~b),
        LOGIC("s_orn2", a | ~b), LOGIC("s_nand", ~(a & b)), LOGIC("s_nor", ~(a | b)),
        LOGIC("s_xnor", ~(a ^ b)),
        SC("s_lshl_b32", 1, 1, 1, const u64 r = Low(I(a) << (b % 32), 32); return Out{r, r != 0};),
        SC("s_lshl_b64", 2, 2, 1, const u64 r = a << (b % 64); return Out{r, r != 0};),
        SC("s_lshr_b32", 1, 1, 1, const u64 r = a >> (b % 32); return Out{r, r != 0};),
        SC("s_lshr_b64", 2, 2, 1, const u64 r = a >> (b % 64); return Out{r, r != 0};),
        SC("s_ashr_i32", 1, 1, 1, const u64 r = Low(Signed(a, 32) >> (b % 32), 32);
           return Out{r, r != 0};),
        SC("s_ashr_i64", 2, 2, 1, const u64 r = Low(Signed(a, 64) >> (b % 64), 64);
           return Out{r, r != 0};),
        SC("s_bfm_b32", 1, 1, 1, return Out{Low(((I(1) << (a % 32)) - 1) << (b % 32), 32), 2};),
        SC("s_bfm_b64", 2, 1, 1, return Out{Low(((I(1) << (a % 64)) - 1) << (b % 64), 64), 2};),
        SC("s_mul_i32", 1, 1, 1, return Out{Low(I(a) * I(b), 32), 2};),
        SC("s_mul_hi_u32", 1, 1, 1, return Out{Low(I(a) * I(b) >> 32, 32), 2};),
        SC("s_mul_hi_i32", 1, 1, 1, return Out{Low(Signed(a, 32) * Signed(b, 32) >> 32, 32), 2};),
        SC("s_bfe_u32", 1, 1, 1, const u64 r = Field(a, b, 32, false); return Out{r, r != 0};),
        SC("s_bfe_i32", 1, 1, 1, const u64 r = Field(a, b, 32, true); return Out{r, r != 0};),
        SC("s_bfe_u64", 2, 2, 1, const u64 r = Field(a, b, 64, false); return Out{r, r != 0};),
        SC("s_bfe_i64", 2, 2, 1, const u64 r = Field(a, b, 64, true); return Out{r, r != 0};),
        SC("s_absdiff_i32", 1, 1, 1, const I d = Signed(a, 32) - Signed(b, 32);
           const u64 r = Low(d < 0 ? -d : d, 32); return Out{r, r != 0};),
        SC("s_lshl1_add_u32", 1, 1, 1, const I r = I(a) * 2 + I(b);
           return Out{Low(r, 32), r > 0xffffffffLL};),
        SC("s_lshl2_add_u32", 1, 1, 1, const I r = I(a) * 4 + I(b);
           return Out{Low(r, 32), r > 0xffffffffLL};),
        SC("s_lshl3_add_u32", 1, 1, 1, const I r = I(a) * 8 + I(b);
           return Out{Low(r, 32), r > 0xffffffffLL};),
        SC("s_lshl4_add_u32", 1, 1, 1, const I r = I(a) * 16 + I(b);
           return Out{Low(r, 32), r > 0xffffffffLL};),
        SC("s_pack_ll_b32_b16", 1, 1, 1, return Out{(a & 0xffff) | (b & 0xffff) << 16, 2};),
        SC("s_pack_lh_b32_b16", 1, 1, 1, return Out{(a & 0xffff) | (b >> 16) << 16, 2};),
        SC("s_pack_hh_b32_b16", 1, 1, 1, return Out{a >> 16 | (b >> 16) << 16, 2};),
        SC("s_mov_b32", 1, 1, 0, return Out{a, 2};), SC("s_mov_b64", 2, 2, 0, return Out{a, 2};),
        SC("s_not_b32", 1, 1, 0, const u64 r = Low(~I(a), 32); return Out{r, r != 0};),
        SC("s_not_b64", 2, 2, 0, return Out{~a, ~a != 0};),
        SC("s_brev_b32", 1, 1, 0, u64 r = 0;
           for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i); return Out{r, 2};),
        SC("s_brev_b64", 2, 2, 0, u64 r = 0;
           for (int i = 0; i < 64; ++i) r |= (a >> i & 1) << (63 - i); return Out{r, 2};),
        SC("s_bcnt1_i32_b32", 1, 1, 0, u64 n = 0; for (int i = 0; i < 32; ++i) n += a >> i & 1;
           return Out{n, n != 0};),
        SC("s_bcnt1_i32_b64", 1, 2, 0, u64 n = 0; for (int i = 0; i < 64; ++i) n += a >> i & 1;
           return Out{n, n != 0};),
        SC("s_bcnt0_i32_b32", 1, 1, 0, u64 n = 32; for (int i = 0; i < 32; ++i) n -= a >> i & 1;
           return Out{n, n != 0};),
        SC("s_bcnt0_i32_b64", 1, 2, 0, u64 n = 64; for (int i = 0; i < 64; ++i) n -= a >> i & 1;
           return Out{n, n != 0};),
        SC("s_ff1_i32_b32", 1, 1, 0, for (u64 i = 0; i < 32; ++i) if (a >> i & 1) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_ff1_i32_b64", 1, 2, 0, for (u64 i = 0; i < 64; ++i) if (a >> i & 1) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_ff0_i32_b32", 1, 1, 0,
           for (u64 i = 0; i < 32; ++i) if (!(a >> i & 1)) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_ff0_i32_b64", 1, 2, 0,
           for (u64 i = 0; i < 64; ++i) if (!(a >> i & 1)) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_flbit_i32_b32", 1, 1, 0,
           for (u64 i = 0; i < 32; ++i) if (a >> (31 - i) & 1) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_flbit_i32_b64", 1, 2, 0,
           for (u64 i = 0; i < 64; ++i) if (a >> (63 - i) & 1) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_flbit_i32", 1, 1, 0,
           for (u64 i = 1; i < 32; ++i) if ((a >> (31 - i) & 1) != a >> 31) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_flbit_i32_i64", 1, 2, 0,
           for (u64 i = 1; i < 64; ++i) if ((a >> (63 - i) & 1) != a >> 63) return Out{i, 2};
           return Out{0xffffffff, 2};),
        SC("s_sext_i32_i8", 1, 1, 0, return Out{Low(Signed(a, 8), 32), 2};),
        SC("s_sext_i32_i16", 1, 1, 0, return Out{Low(Signed(a, 16), 32), 2};),
        SC("s_abs_i32", 1, 1, 0, const I x = Signed(a, 32); const u64 r = Low(x < 0 ? -x : x, 32);
           return Out{r, r != 0};),
        SC("s_wqm_b64", 2, 2, 0, u64 r = 0;
           for (int i = 0; i < 64; ++i) if (a >> (i & ~3) & 15) r |= u64{1} << i;
           return Out{r, r != 0};),
        SC("s_quadmask_b64", 2, 2, 0, u64 r = 0;
           for (int i = 0; i < 16; ++i) if (a >> (4 * i) & 15) r |= u64{1} << i;
           return Out{r, r != 0};),
        SC("s_bitreplicate_b64_b32", 2, 1, 0, u64 r = 0;
           for (int i = 0; i < 64; ++i) r |= (a >> (i / 2) & 1) << i; return Out{r, 2};),
        SC("s_cmp_eq_i32", 0, 1, 1, return Out{0, a == b};),
        SC("s_cmp_lg_i32", 0, 1, 1, return Out{0, a != b};),
        SC("s_cmp_gt_i32", 0, 1, 1, return Out{0, Signed(a, 32) > Signed(b, 32)};),
        SC("s_cmp_ge_i32", 0, 1, 1, return Out{0, Signed(a, 32) >= Signed(b, 32)};),
        SC("s_cmp_lt_i32", 0, 1, 1, return Out{0, Signed(a, 32) < Signed(b, 32)};),
        SC("s_cmp_le_i32", 0, 1, 1, return Out{0, Signed(a, 32) <= Signed(b, 32)};),
        SC("s_cmp_gt_u32", 0, 1, 1, return Out{0, a > b};),
        SC("s_cmp_ge_u32", 0, 1, 1, return Out{0, a >= b};),
        SC("s_cmp_lt_u32", 0, 1, 1, return Out{0, a < b};),
        SC("s_cmp_le_u32", 0, 1, 1, return Out{0, a <= b};),
        SC("s_cmp_eq_u32", 0, 1, 1, return Out{0, a == b};),
        SC("s_cmp_lg_u32", 0, 1, 1, return Out{0, a != b};),
        SC("s_cmp_eq_u64", 0, 2, 2, return Out{0, a == b};),
        SC("s_cmp_lg_u64", 0, 2, 2, return Out{0, a != b};),
        SC("s_bitcmp0_b32", 0, 1, 1, return Out{0, !(a >> (b % 32) & 1)};),
        SC("s_bitcmp1_b32", 0, 1, 1, return Out{0, static_cast<int>(a >> (b % 32) & 1)};),
        SC("s_bitcmp0_b64", 0, 2, 1, return Out{0, !(a >> (b % 64) & 1)};),
        SC("s_bitcmp1_b64", 0, 2, 1, return Out{0, static_cast<int>(a >> (b % 64) & 1)};),
  };
}

}  // namespace mainarch::sim::isa::test
