// SPDX-License-Identifier: MIT
//
// Instructions that touch more than a destination (SCC, VCC, EXEC, M0, the program counter, other
// lanes), and operand modifiers: each is a function on a model of the whole register state, and
// after it all of the state must agree. Random states; half of the lanes are off in half of the
// rounds.
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"
#include "unit/sim_isa/vectors.h"

namespace mainarch::sim::isa::test {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;
constexpr int kRegisters = 48;

struct State {
  u32 s[128];
  bool scc;
  u32 v[kRegisters][kLanes], a[8][kLanes];

  u64 P(int r) const { return s[r] | u64{s[r + 1]} << 32; }
  void Set(int r, u64 x) { s[r] = static_cast<u32>(x), s[r + 1] = static_cast<u32>(x >> 32); }
  u64 exec() const { return P(126); }
  u64 vcc() const { return P(106); }
  u64 V2(int r, int l) const { return v[r][l] | u64{v[r + 1][l]} << 32; }
  void Set2(int r, int l, u64 x) {
    v[r][l] = static_cast<u32>(x), v[r + 1][l] = static_cast<u32>(x >> 32);
  }
  bool On(int l) const { return exec() >> l & 1; }
};
float F(u32 x) { return __builtin_bit_cast(float, x); }
u32 B(float x) { return __builtin_bit_cast(u32, x); }
double D(u64 x) { return __builtin_bit_cast(double, x); }
u64 B(double x) { return __builtin_bit_cast(u64, x); }
double H(u32 x) {
  return static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(x)));
}
u32 BH(double x) { return __builtin_bit_cast(uint16_t, static_cast<_Float16>(x)); }
u32 Popcount(u64 x) {
  u32 n = 0;
  for (; x; x &= x - 1) ++n;
  return n;
}

using Apply = std::function<void(State&)>;
struct Item {
  std::string name, text;  // of the mnemonic; the assembly
  Apply apply;
  int nan_bits = 0;  // 32, 64: any NaN in v20 (and v21) is as good as another
};

// For active lanes: v[d] = f(lane).
template <class T>
Apply Lanes(int d, T f) {
  return [d, f](State& s) {
    const State old = s;
    for (int l = 0; l < kLanes; ++l)
      if (old.On(l)) s.v[d][l] = f(old, l);
  };
}
#define LANES(d, expression) \
  Lanes(d, [](const State& s, int l) -> u32 { return static_cast<u32>(expression); })
#define SCALAR(...) [](State& s) { __VA_ARGS__; }

template <class T>
Item SaveExec(const char* name, T f) {
  return {absl::StrCat("s_", name, "_saveexec_b64"),
          absl::StrCat("s_", name, "_saveexec_b64 s[4:5], s[8:9]"), [f](State& s) {
            const u64 old = s.exec(), now = f(s.P(8), old);
            s.Set(4, old);
            s.Set(126, now);
            s.scc = now != 0;
          }};
}
template <class T>
void CompareK(const char* relation, std::vector<Item>* out, T f) {
  for (const bool is_signed : {true, false}) {
    const std::string name = absl::StrCat("s_cmpk_", relation, is_signed ? "_i32" : "_u32");
    out->push_back({name, absl::StrCat(name, " s4, 0x8005"), [f, is_signed](State& s) {
                      const int64_t a =
                          is_signed ? int64_t{static_cast<int32_t>(s.s[4])} : int64_t{s.s[4]};
                      s.scc =
                          f(a, is_signed ? int64_t{static_cast<int16_t>(0x8005)} : int64_t{0x8005});
                    }});
  }
}
// carry in and out; sign: a + b or a - b or b - a
Item Carry(const char* name, bool in, int order) {
  const std::string text = absl::StrCat(name, "_e64 v20, s[10:11], v1, v2", in ? ", s[12:13]" : "");
  return {name, text, [in, order](State& s) {
            u64 flags = 0;
            const State old = s;
            for (int l = 0; l < kLanes; ++l) {
              if (!old.On(l)) continue;
              const __int128 a = old.v[1][l], b = old.v[2][l], c = in ? old.P(12) >> l & 1 : 0;
              const __int128 r = order == 0 ? a + b + c : order == 1 ? a - b - c : b - a - c;
              s.v[20][l] = static_cast<u32>(r);
              flags |= u64{r < 0 || r > 0xffffffffll} << l;
            }
            s.Set(10, flags);
          }};
}
bool InClass(double x, bool denormal, bool quiet, u32 mask) {
  int bit;
  if (std::isnan(x))
    bit = quiet ? 1 : 0;
  else if (std::isinf(x))
    bit = std::signbit(x) ? 2 : 9;
  else if (x == 0)
    bit = std::signbit(x) ? 5 : 6;
  else if (denormal)
    bit = std::signbit(x) ? 4 : 7;
  else
    bit = std::signbit(x) ? 3 : 8;
  return mask >> bit & 1;
}
template <class T>
void Class(const char* type, const char* operand, std::vector<Item>* out, T in_class) {
  for (const bool x : {false, true}) {
    const std::string name = absl::StrCat(x ? "v_cmpx_class_" : "v_cmp_class_", type);
    out->push_back(
        {name, absl::StrCat(name, "_e64 s[10:11], ", operand, ", v3"), [x, in_class](State& s) {
           u64 flags = 0;
           for (int l = 0; l < kLanes; ++l)
             if (s.On(l)) flags |= u64{in_class(s, l)} << l;
           s.Set(10, flags);
           if (x) s.Set(126, flags);
         }});
  }
}

// Scaling of a division's operands, so that no step of the iteration leaves the range of numbers.
// `numerator`: source 0 is source 2, otherwise it is source 1. The manual's cases, in its order,
// with two readings, for which there are measurements of an instruction whose text is the same (all of
// 262,144 operand triples on gfx1151 and on gfx1201, in a public emulator's notes on its
// v_div_scale_f32; nobody has published such for CDNA3):
// * A reciprocal is denormal when it is so in the operands' own type. The manual prints the f32
//   form's with the denominator widened, which is never denormal there; measured, denominators of
//   2^127 and above are scaled by 2^-64.
// * Where reciprocal and quotient both are, that is done to the denominator alone, and downwards.
//   The manual prints upwards, which would make it infinite, and 0.5 / 2^127 a NaN.
// The measured chips call a quotient denormal from an exponent difference of -96 on; the manual
// does not, and either way a division comes out the same.
template <class T>
T DivisionScale(bool numerator, T d, T n, bool* flag) {
  constexpr bool kWide = sizeof(T) == 8;
  constexpr int kFar = kWide ? 768 : 96, kStep = kWide ? 128 : 64, kTiny = kWide ? 53 : 23;
  const auto exponent = [](T x) {
    return kWide ? static_cast<int>(__builtin_bit_cast(u64, static_cast<double>(x)) >> 52 & 2047)
                 : static_cast<int>(__builtin_bit_cast(u32, static_cast<float>(x)) >> 23 & 255);
  };
  const auto denormal = [](T x) { return std::fpclassify(x) == FP_SUBNORMAL; };
  const T x = numerator ? n : d;
  const auto scaled = [x](int by) { return std::ldexp(x, by); };
  *flag = false;
  if (n == 0 || d == 0) return NAN;
  if (exponent(n) - exponent(d) >= kFar) {
    *flag = true;
    return numerator ? x : scaled(kStep);
  }
  if (denormal(d)) return scaled(kStep);
  if (denormal(1 / d) && denormal(n / d)) {
    *flag = true;
    return numerator ? x : scaled(-kStep);
  }
  if (denormal(1 / d)) return scaled(-kStep);
  if (denormal(n / d)) {
    *flag = true;
    return numerator ? scaled(kStep) : x;
  }
  return exponent(n) <= kTiny ? scaled(kStep) : x;
}
Item ScaleItem32(bool numerator) {
  return {"v_div_scale_f32",
          numerator ? "v_div_scale_f32 v20, s[10:11], v2, v1, v2"
                    : "v_div_scale_f32 v20, s[10:11], v1, v1, v2",
          [numerator](State& s) {
            u64 flags = 0;
            for (int l = 0; l < kLanes; ++l) {
              if (!s.On(l)) continue;
              bool flag;
              s.v[20][l] = B(DivisionScale<float>(numerator, F(s.v[1][l]), F(s.v[2][l]), &flag));
              flags |= u64{flag} << l;
            }
            s.Set(10, flags);
          },
          32};
}
Item ScaleItem64(bool numerator) {
  return {"v_div_scale_f64",
          numerator ? "v_div_scale_f64 v[20:21], s[10:11], v[4:5], v[2:3], v[4:5]"
                    : "v_div_scale_f64 v[20:21], s[10:11], v[2:3], v[2:3], v[4:5]",
          [numerator](State& s) {
            u64 flags = 0;
            for (int l = 0; l < kLanes; ++l) {
              if (!s.On(l)) continue;
              bool flag;
              s.Set2(20, l, B(DivisionScale<double>(numerator, D(s.V2(2, l)), D(s.V2(4, l)), &flag)));
              flags |= u64{flag} << l;
            }
            s.Set(10, flags);
          },
          64};
}

// Stochastic rounding to a format whose neighbours of |x| are low and high: up when the part of the
// way to high, in random's units of 1 / range, and random make a whole.
u32 Stochastic(float x, u32 random, u32 range, u32 low_code, double low, double high) {
  const double part = (std::fabs(static_cast<double>(x)) - low) / (high - low) * range;
  const u32 up = std::floor(part) + random % range >= range;
  return low_code + up;
}
u32 StochasticBfloat(float x, u32 random) {
  const u32 code = B(std::fabs(x)) >> 16;
  return Stochastic(x, random, 1 << 16, code, F(code << 16), F((code + 1) << 16)) |
         (std::signbit(x) ? 0x8000 : 0);
}
u32 StochasticHalf(float x, u32 random) {
  u32 code = 0;
  while (H(code + 1) <= std::fabs(static_cast<double>(x))) ++code;
  return Stochastic(x, random, 1 << 13, code, H(code), H(code + 1)) |
         (std::signbit(x) ? 0x8000 : 0);
}

std::vector<Item> Items() {
  std::vector<Item> out = {
      SaveExec("and", [](u64 a, u64 e) { return a & e; }), SaveExec("or", [](u64 a, u64 e) { return a | e; }),
      SaveExec("xor", [](u64 a, u64 e) { return a ^ e; }), SaveExec("andn2", [](u64 a, u64 e) { return a & ~e; }),
      SaveExec("orn2", [](u64 a, u64 e) { return a | ~e; }), SaveExec("nand", [](u64 a, u64 e) { return ~(a & e); }),
      SaveExec("nor", [](u64 a, u64 e) { return ~(a | e); }), SaveExec("xnor", [](u64 a, u64 e) { return ~(a ^ e); }),
      SaveExec("andn1", [](u64 a, u64 e) { return ~a & e; }), SaveExec("orn1", [](u64 a, u64 e) { return ~a | e; }),
      {"s_andn1_wrexec_b64", "s_andn1_wrexec_b64 s[4:5], s[8:9]", SCALAR(const u64 r = ~s.P(8) & s.exec(); s.Set(4, r); s.Set(126, r); s.scc = r != 0)},
      {"s_andn2_wrexec_b64", "s_andn2_wrexec_b64 s[4:5], s[8:9]", SCALAR(const u64 r = s.P(8) & ~s.exec(); s.Set(4, r); s.Set(126, r); s.scc = r != 0)},
      {"s_movk_i32", "s_movk_i32 s4, 0x8001", SCALAR(s.s[4] = 0xffff8001)},
      {"s_cmovk_i32", "s_cmovk_i32 s4, 0x8001", SCALAR(if (s.scc) s.s[4] = 0xffff8001)},
      {"s_addk_i32", "s_addk_i32 s4, 0x8001", SCALAR(const int64_t r = int64_t{static_cast<int32_t>(s.s[4])} - 32767; s.s[4] = static_cast<u32>(r); s.scc = r != static_cast<int32_t>(r))},
      {"s_mulk_i32", "s_mulk_i32 s4, 0x8001", SCALAR(s.s[4] *= 0xffff8001u)},
      {"s_cmov_b32", "s_cmov_b32 s4, s8", SCALAR(if (s.scc) s.s[4] = s.s[8])},
      {"s_cmov_b64", "s_cmov_b64 s[4:5], s[8:9]", SCALAR(if (s.scc) s.Set(4, s.P(8)))},
      {"s_bitset0_b32", "s_bitset0_b32 s4, s8", SCALAR(s.s[4] &= ~(1u << (s.s[8] & 31)))},
      {"s_bitset1_b32", "s_bitset1_b32 s4, s8", SCALAR(s.s[4] |= 1u << (s.s[8] & 31))},
      {"s_bitset0_b64", "s_bitset0_b64 s[4:5], s8", SCALAR(s.Set(4, s.P(4) & ~(u64{1} << (s.s[8] & 63))))},
      {"s_bitset1_b64", "s_bitset1_b64 s[4:5], s8", SCALAR(s.Set(4, s.P(4) | u64{1} << (s.s[8] & 63)))},
      {"s_wqm_b32", "s_wqm_b32 s4, s8", SCALAR(u32 r = 0; for (int q = 0; q < 32; q += 4) if (s.s[8] >> q & 15) r |= 15u << q; s.s[4] = r; s.scc = r != 0)},
      {"s_quadmask_b32", "s_quadmask_b32 s4, s8", SCALAR(u32 r = 0; for (int q = 0; q < 8; ++q) if (s.s[8] >> (4 * q) & 15) r |= 1u << q; s.s[4] = r; s.scc = r != 0)},
      {"s_movrels_b32", "s_movrels_b32 s4, s8", SCALAR(s.s[4] = s.s[8 + s.s[124]])},
      {"s_movrels_b64", "s_movrels_b64 s[4:5], s[8:9]", SCALAR(s.Set(4, s.P(8 + static_cast<int>(s.s[124]))))},
      {"s_movreld_b32", "s_movreld_b32 s4, s8", SCALAR(s.s[4 + s.s[124]] = s.s[8])},
      {"s_movreld_b64", "s_movreld_b64 s[4:5], s[8:9]", SCALAR(const u64 x = s.P(8); s.Set(4 + static_cast<int>(s.s[124]), x))},
      // lanes and scalars
      {"v_readlane_b32", "v_readlane_b32 s4, v1, s8", SCALAR(s.s[4] = s.v[1][s.s[8] & 63])},
      {"v_writelane_b32", "v_writelane_b32 v1, s4, 37", SCALAR(s.v[1][37] = s.s[4])},
      // The constant bus carries one scalar register: here it is the lane.
      {"v_writelane_b32", "v_writelane_b32 v1, 7, s8", SCALAR(s.v[1][s.s[8] & 63] = 7)},
      {"v_readfirstlane_b32", "v_readfirstlane_b32 s4, v1", SCALAR(int l = 0; while (l < 63 && !s.On(l)) ++l; s.s[4] = s.v[1][s.exec() ? l : 0])},
      {"v_swap_b32", "v_swap_b32 v1, v2", SCALAR(for (int l = 0; l < kLanes; ++l) if (s.On(l)) std::swap(s.v[1][l], s.v[2][l]))},
      {"v_nop", "v_nop", SCALAR((void)s)},
      {"v_mbcnt_lo_u32_b32", "v_mbcnt_lo_u32_b32 v20, s8, v2", LANES(20, Popcount(s.s[8] & (l < 32 ? (1u << l) - 1 : ~0u)) + s.v[2][l])},
      {"v_mbcnt_hi_u32_b32", "v_mbcnt_hi_u32_b32 v20, s8, v2", LANES(20, Popcount(l < 32 ? 0 : s.s[8] & ((u64{1} << (l - 32)) - 1)) + s.v[2][l])},
      {"v_cndmask_b32", "v_cndmask_b32_e64 v20, v1, v2, s[8:9]", LANES(20, s.P(8) >> l & 1 ? s.v[2][l] : s.v[1][l])},
      {"v_accvgpr_write_b32", "v_accvgpr_write_b32 a3, v1", SCALAR(for (int l = 0; l < kLanes; ++l) if (s.On(l)) s.a[3][l] = s.v[1][l])},
      {"v_accvgpr_read_b32", "v_accvgpr_read_b32 v20, a2", LANES(20, s.a[2][l])},
      {"v_accvgpr_mov_b32", "v_accvgpr_mov_b32 a1, a2", SCALAR(for (int l = 0; l < kLanes; ++l) if (s.On(l)) s.a[1][l] = s.a[2][l])},
      Carry("v_add_co_u32", false, 0), Carry("v_sub_co_u32", false, 1), Carry("v_subrev_co_u32", false, 2),
      Carry("v_addc_co_u32", true, 0), Carry("v_subb_co_u32", true, 1), Carry("v_subbrev_co_u32", true, 2),
      {"v_mad_u64_u32", "v_mad_u64_u32 v[20:21], s[10:11], v1, v2, v[4:5]", [](State& s) {
         u64 flags = 0;
         for (int l = 0; l < kLanes; ++l) {
           if (!s.On(l)) continue;
           const unsigned __int128 r = static_cast<unsigned __int128>(u64{s.v[1][l]} * s.v[2][l]) + s.V2(4, l);
           s.Set2(20, l, static_cast<u64>(r));
           flags |= static_cast<u64>(r >> 64) << l;
         }
         s.Set(10, flags);
       }},
      {"v_mad_i64_i32", "v_mad_i64_i32 v[20:21], s[10:11], v1, v2, v[4:5]", [](State& s) {
         u64 flags = 0;
         for (int l = 0; l < kLanes; ++l) {
           if (!s.On(l)) continue;
           const __int128 r = static_cast<__int128>(int64_t{static_cast<int32_t>(s.v[1][l])} * static_cast<int32_t>(s.v[2][l])) + static_cast<int64_t>(s.V2(4, l));
           s.Set2(20, l, static_cast<u64>(r));
           flags |= u64{r != static_cast<int64_t>(r)} << l;
         }
         s.Set(10, flags);
       }},
      {"v_permlane16_swap_b32", "v_permlane16_swap_b32 v1, v2", [](State& s) {
         const State old = s;
         for (int l = 0; l < kLanes; ++l) {
           if (!old.On(l)) continue;
           if (l & 16) s.v[1][l] = old.v[2][l ^ 16];
           else s.v[2][l] = old.v[1][l ^ 16];
         }
       }},
      {"v_permlane32_swap_b32", "v_permlane32_swap_b32 v1, v2", [](State& s) {
         const State old = s;
         for (int l = 0; l < kLanes; ++l) {
           if (!old.On(l)) continue;
           if (l & 32) s.v[1][l] = old.v[2][l ^ 32];
           else s.v[2][l] = old.v[1][l ^ 32];
         }
       }},
      {"v_bitop3_b32", "v_bitop3_b32 v20, v1, v2, v3 bitop3:0x6a", Lanes(20, [](const State& s, int l) {
         u32 r = 0;
         for (int b = 0; b < 32; ++b) {
           const int index = static_cast<int>((s.v[1][l] >> b & 1) << 2 | (s.v[2][l] >> b & 1) << 1 | (s.v[3][l] >> b & 1));
           r |= static_cast<u32>(0x6a >> index & 1) << b;
         }
         return r;
       })},
      {"v_bitop3_b16", "v_bitop3_b16 v20, v1, v2, v3 bitop3:0xe4", Lanes(20, [](const State& s, int l) {
         u32 r = s.v[20][l] & 0xffff0000;
         for (int b = 0; b < 16; ++b) {
           const int index = static_cast<int>((s.v[1][l] >> b & 1) << 2 | (s.v[2][l] >> b & 1) << 1 | (s.v[3][l] >> b & 1));
           r |= static_cast<u32>(0xe4 >> index & 1) << b;
         }
         return r;
       })},
      {"v_cvt_pkaccum_u8_f32", "v_cvt_pkaccum_u8_f32 v20, v6, v3", LANES(20, (s.v[20][l] & ~(255u << (8 * (s.v[3][l] & 3)))) | static_cast<u32>(std::nearbyint(std::min(std::max(F(s.v[6][l]), 0.0f), 255.0f))) << (8 * (s.v[3][l] & 3)))},
      {"v_cvt_pk_u8_f32", "v_cvt_pk_u8_f32 v20, v6, v3, v4", LANES(20, (s.v[4][l] & ~(255u << (8 * (s.v[3][l] & 3)))) | static_cast<u32>(std::nearbyint(std::min(std::max(F(s.v[6][l]), 0.0f), 255.0f))) << (8 * (s.v[3][l] & 3)))},
      // floats: v6 to v11 hold moderate ones
      {"v_fmamk_f32", "v_fmamk_f32 v20, v6, 0x40490fdb, v7", LANES(20, B(std::fma(F(s.v[6][l]), F(0x40490fdb), F(s.v[7][l]))))},
      {"v_fmaak_f32", "v_fmaak_f32 v20, v6, v7, 0x40490fdb", LANES(20, B(std::fma(F(s.v[6][l]), F(s.v[7][l]), F(0x40490fdb))))},
      {"v_pk_fma_f32", "v_pk_fma_f32 v[20:21], v[6:7], v[8:9], v[10:11]", [](State& s) { for (int l = 0; l < kLanes; ++l) for (int k = 0; k < 2; ++k) if (s.On(l)) s.v[20 + k][l] = B(std::fma(F(s.v[6 + k][l]), F(s.v[8 + k][l]), F(s.v[10 + k][l]))); }},
      {"v_pk_mul_f32", "v_pk_mul_f32 v[20:21], v[6:7], v[8:9] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0]", [](State& s) { for (int l = 0; l < kLanes; ++l) if (s.On(l)) s.v[20][l] = B(-F(s.v[7][l]) * F(s.v[8][l])), s.v[21][l] = B(F(s.v[6][l]) * F(s.v[9][l])); }},
      {"v_pk_add_f32", "v_pk_add_f32 v[20:21], v[6:7], v[8:9] neg_hi:[0,1]", [](State& s) { for (int l = 0; l < kLanes; ++l) if (s.On(l)) s.v[20][l] = B(F(s.v[6][l]) + F(s.v[8][l])), s.v[21][l] = B(F(s.v[7][l]) - F(s.v[9][l])); }},
      {"v_pk_mov_b32", "v_pk_mov_b32 v[20:21], v[6:7], v[8:9] op_sel:[1,0]", [](State& s) { for (int l = 0; l < kLanes; ++l) if (s.On(l)) s.v[20][l] = s.v[7][l], s.v[21][l] = s.v[8][l]; }},
      {"v_fma_mix_f32", "v_fma_mix_f32 v20, v6, v12, v7 op_sel:[0,1,0] op_sel_hi:[0,1,0]", LANES(20, B(std::fma(F(s.v[6][l]), static_cast<float>(H(s.v[12][l] >> 16)), F(s.v[7][l]))))},
      {"v_fma_mixlo_f16", "v_fma_mixlo_f16 v20, v12, v13, v14 op_sel_hi:[1,1,1]", LANES(20, (s.v[20][l] & 0xffff0000) | BH(std::fma(static_cast<float>(H(s.v[12][l])), static_cast<float>(H(s.v[13][l])), static_cast<float>(H(s.v[14][l])))))},
      {"v_fma_mixhi_f16", "v_fma_mixhi_f16 v20, v12, v13, v14 op_sel_hi:[1,1,1]", LANES(20, (s.v[20][l] & 0xffff) | BH(std::fma(static_cast<float>(H(s.v[12][l])), static_cast<float>(H(s.v[13][l])), static_cast<float>(H(s.v[14][l])))) << 16)},
      // Floating inline constants of packed integers are f32, a half of which op_sel takes.
      {"v_pk_add_u16", "v_pk_add_u16 v14, v12, 2.0 op_sel:[0,1]", LANES(14, ((s.v[12][l] + 0x4000) & 0xffff) | ((s.v[12][l] & 0xffff0000u) + 0x40000000u))},
      {"v_pk_sub_i16", "v_pk_sub_i16 v14, v12, -4.0 op_sel_hi:[1,0]", LANES(14, s.v[12][l])},
      {"v_pk_mul_lo_u16", "v_pk_mul_lo_u16 v14, v12, 7 op_sel_hi:[1,0]", LANES(14, (s.v[12][l] * 7 & 0xffff) | (s.v[12][l] >> 16) * 7 << 16)},
      {"v_pk_fmac_f16", "v_pk_fmac_f16 v14, v12, v13", LANES(14, BH(std::fma(H(s.v[12][l]), H(s.v[13][l]), H(s.v[14][l]))) | BH(std::fma(H(s.v[12][l] >> 16), H(s.v[13][l] >> 16), H(s.v[14][l] >> 16))) << 16)},
      {"v_dot2_f32_f16", "v_dot2_f32_f16 v20, v12, v13, v6", LANES(20, B(std::fma(static_cast<float>(H(s.v[12][l] >> 16)), static_cast<float>(H(s.v[13][l] >> 16)), std::fma(static_cast<float>(H(s.v[12][l])), static_cast<float>(H(s.v[13][l])), F(s.v[6][l])))))},
      {"v_dot2c_f32_f16", "v_dot2c_f32_f16 v6, v12, v13", LANES(6, B(std::fma(static_cast<float>(H(s.v[12][l] >> 16)), static_cast<float>(H(s.v[13][l] >> 16)), std::fma(static_cast<float>(H(s.v[12][l])), static_cast<float>(H(s.v[13][l])), F(s.v[6][l])))))},
      {"v_dot2c_i32_i16", "v_dot2c_i32_i16 v3, v1, v2", LANES(3, s.v[3][l] + static_cast<u32>(static_cast<int16_t>(s.v[1][l]) * static_cast<int16_t>(s.v[2][l])) + static_cast<u32>(static_cast<int16_t>(s.v[1][l] >> 16) * static_cast<int16_t>(s.v[2][l] >> 16)))},
      {"v_dot4c_i32_i8", "v_dot4c_i32_i8 v3, v1, v2", Lanes(3, [](const State& s, int l) { u32 r = s.v[3][l]; for (int k = 0; k < 32; k += 8) r += static_cast<u32>(static_cast<int8_t>(s.v[1][l] >> k) * static_cast<int8_t>(s.v[2][l] >> k)); return r; })},
      {"v_dot8c_i32_i4", "v_dot8c_i32_i4 v3, v1, v2", Lanes(3, [](const State& s, int l) { u32 r = s.v[3][l]; for (int k = 0; k < 32; k += 4) r += static_cast<u32>((static_cast<int32_t>(s.v[1][l] << (28 - k)) >> 28) * (static_cast<int32_t>(s.v[2][l] << (28 - k)) >> 28)); return r; })},
      {"v_div_fixup_f64", "v_div_fixup_f64 v[20:21], v[30:31], v[32:33], v[34:35]", [](State& s) {
         for (int l = 0; l < kLanes; ++l) {
           if (!s.On(l)) continue;
           const double q = D(s.V2(30, l)), d = D(s.V2(32, l)), n = D(s.V2(34, l));
           s.Set2(20, l, B(std::copysign(q, std::signbit(d) != std::signbit(n) ? -1.0 : 1.0)));
         }
       }},
      ScaleItem32(false), ScaleItem32(true), ScaleItem64(false), ScaleItem64(true),
      {"v_div_fmas_f32", "v_div_fmas_f32 v20, v6, v7, v1", LANES(20, B(s.vcc() >> l & 1 ? std::ldexp(std::fma(F(s.v[6][l]), F(s.v[7][l]), F(s.v[1][l])), (s.v[1][l] >> 23 & 255) > 127 ? 64 : -64) : std::fma(F(s.v[6][l]), F(s.v[7][l]), F(s.v[1][l])))), 32},
      {"v_div_fmas_f64", "v_div_fmas_f64 v[20:21], v[30:31], v[32:33], v[4:5]", [](State& s) {
         for (int l = 0; l < kLanes; ++l) {
           if (!s.On(l)) continue;
           const double r = std::fma(D(s.V2(30, l)), D(s.V2(32, l)), D(s.V2(4, l)));
           s.Set2(20, l, B(s.vcc() >> l & 1 ? std::ldexp(r, (s.v[5][l] >> 20 & 2047) > 1023 ? 128 : -128) : r));
         }
       }, 64},
      {"v_mqsad_u32_u8", "v_mqsad_u32_u8 v[20:23], v[4:5], v1, v[36:39]", [](State& s) {
         for (int l = 0; l < kLanes; ++l) {
           for (int w = 0; w < 4 && s.On(l); ++w) {
             u32 sum = s.v[36 + w][l];
             for (int k = 0; k < 4; ++k) {
               const int x = static_cast<int>(s.V2(4, l) >> (8 * (w + k)) & 255), y = static_cast<int>(s.v[1][l] >> (8 * k) & 255);
               sum += y == 0 ? 0 : static_cast<u32>(std::abs(x - y));
             }
             s.v[20 + w][l] = sum;
           }
         }
       }},
      {"v_cvt_sr_bf16_f32", "v_cvt_sr_bf16_f32 v20, v40, v3", LANES(20, (s.v[20][l] & 0xffff0000) | StochasticBfloat(F(s.v[40][l]), s.v[3][l]))},
      {"v_cvt_sr_bf16_f32", "v_cvt_sr_bf16_f32 v20, v40, v3 op_sel:[0,0,1]", LANES(20, (s.v[20][l] & 0xffff) | StochasticBfloat(F(s.v[40][l]), s.v[3][l]) << 16)},
      {"v_cvt_sr_f16_f32", "v_cvt_sr_f16_f32 v20, v40, v3", LANES(20, (s.v[20][l] & 0xffff0000) | StochasticHalf(F(s.v[40][l]), s.v[3][l]))},
      {"v_cvt_sr_f16_f32", "v_cvt_sr_f16_f32 v20, v40, v3 op_sel:[0,0,1]", LANES(20, (s.v[20][l] & 0xffff) | StochasticHalf(F(s.v[40][l]), s.v[3][l]) << 16)},
      {"v_madmk_f16", "v_madmk_f16 v20, v12, 0x4248, v13", LANES(20, BH(H(BH(H(s.v[12][l]) * H(0x4248))) + H(s.v[13][l])))},
      {"v_madak_f16", "v_madak_f16 v20, v12, v13, 0x4248", LANES(20, BH(H(BH(H(s.v[12][l]) * H(s.v[13][l]))) + H(0x4248)))},
      // modifiers: SDWA, DPP, omod, clamp, op_sel
      {"", "v_add_u32_sdwa v20, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:BYTE_3", LANES(20, (s.v[20][l] & 0xff00ffff) | (((s.v[1][l] >> 16) + (s.v[2][l] >> 24)) & 255) << 16)},
      {"", "v_add_u32_sdwa v20, sext(v1), sext(v2) dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_0", LANES(20, (static_cast<u32>(static_cast<int8_t>(s.v[1][l] >> 8)) + static_cast<u32>(static_cast<int16_t>(s.v[2][l]))) << 16)},
      {"", "v_lshlrev_b32_sdwa v20, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:WORD_1", LANES(20, (s.v[2][l] >> 16) << (s.v[1][l] & 31))},
      {"", "v_add_f32_e64 v20, |v6|, -v7 mul:4", LANES(20, B((std::fabs(F(s.v[6][l])) - F(s.v[7][l])) * 4))},
      {"", "v_mul_f32_e64 v20, v6, v7 clamp div:2", LANES(20, B(std::min(std::max(F(s.v[6][l]) * F(s.v[7][l]) / 2, 0.0f), 1.0f)))},
      {"", "v_mov_b32_dpp v20, v1 quad_perm:[3,0,2,1] row_mask:0xb bank_mask:0x7", [](State& s) { const State o = s; static const int q[] = {3, 0, 2, 1}; for (int l = 0; l < kLanes; ++l) if (o.On(l) && (0xb >> (l / 16) & 1) && (0x7 >> (l / 4 % 4) & 1) && o.On((l & ~3) | q[l & 3])) s.v[20][l] = o.v[1][(l & ~3) | q[l & 3]]; }},
      {"", "v_add_u32_dpp v20, v1, v2 row_shr:3 row_mask:0xf bank_mask:0xf bound_ctrl:1", LANES(20, (l % 16 >= 3 && s.On(l - 3) ? s.v[1][l - 3] : 0) + s.v[2][l])},
      {"", "v_add_u32_dpp v20, v1, v2 row_ror:5 row_mask:0xf bank_mask:0xf", [](State& s) { const State o = s; for (int l = 0; l < kLanes; ++l) { const int from = (l & 48) | ((l - 5) & 15); if (o.On(l) && o.On(from)) s.v[20][l] = o.v[1][from] + o.v[2][l]; } }},
      {"", "v_mov_b32_dpp v20, v1 wave_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:1", LANES(20, l < 63 && s.On(l + 1) ? s.v[1][l + 1] : 0)},
      {"", "v_mov_b32_dpp v20, v1 row_half_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1", LANES(20, s.On(l ^ 7) ? s.v[1][l ^ 7] : 0)},
      {"", "v_mov_b32_dpp v20, v1 row_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1", LANES(20, s.On(l ^ 15) ? s.v[1][l ^ 15] : 0)},
      {"", "v_add_u32_dpp v20, v1, v2 row_bcast:15 row_mask:0xa bank_mask:0xf", [](State& s) { const State o = s; for (int l = 0; l < kLanes; ++l) { const int from = (l & 48) - 1; if (o.On(l) && (0xa >> (l / 16) & 1) && o.On(from)) s.v[20][l] = o.v[1][from] + o.v[2][l]; } }},
      {"", "v_add_u32_dpp v20, v1, v2 row_bcast:31 row_mask:0xc bank_mask:0xf", [](State& s) { const State o = s; for (int l = 32; l < kLanes; ++l) if (o.On(l) && o.On(31)) s.v[20][l] = o.v[1][31] + o.v[2][l]; }},
  };
  CompareK("eq", &out, [](int64_t a, int64_t b) { return a == b; });
  CompareK("lg", &out, [](int64_t a, int64_t b) { return a != b; });
  CompareK("gt", &out, [](int64_t a, int64_t b) { return a > b; });
  CompareK("ge", &out, [](int64_t a, int64_t b) { return a >= b; });
  CompareK("lt", &out, [](int64_t a, int64_t b) { return a < b; });
  CompareK("le", &out, [](int64_t a, int64_t b) { return a <= b; });
  Class("f32", "v1", &out, [](const State& s, int l) {
    const u32 x = s.v[1][l];
    return InClass(F(x), (x & 0x7f800000) == 0, x & 0x400000, s.v[3][l]);
  });
  Class("f64", "v[4:5]", &out, [](const State& s, int l) {
    const u64 x = s.V2(4, l);
    return InClass(D(x), (x >> 52 & 2047) == 0, x >> 51 & 1, s.v[3][l]);
  });
  Class("f16", "v1", &out, [](const State& s, int l) {
    const u32 x = s.v[1][l];
    return InClass(H(x), (x & 0x7c00) == 0, x & 0x200, s.v[3][l]);
  });
  return out;
}

void Randomise(State* s, std::mt19937& random, bool all) {
  static constexpr u32 kEdges[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                   1, 0x807fffff, 0x3f800000, ~0u,        0x7c00fc00, 0x80007e01};
  const auto word = [&]() -> u32 {
    return random() % 4 == 0 ? kEdges[random() % std::size(kEdges)] : static_cast<u32>(random());
  };
  for (u32& x : s->s) x = word();
  s->s[124] = random() % 6 * 2;  // M0, an index
  s->scc = random() & 1;
  for (auto& row : s->v)
    for (u32& x : row) x = word();
  for (auto& row : s->a)
    for (u32& x : row) x = word();
  for (int r = 6; r < 12; ++r)
    for (u32& x : s->v[r])
      x = B(static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 37.0f);
  for (int r = 12; r < 15; ++r)
    for (u32& x : s->v[r])
      x = BH((static_cast<int>(random() % 2001) - 1000) / 64.0) |
          BH((static_cast<int>(random() % 2001) - 1000) / 64.0) << 16;
  // From denormal halves to large ones.
  for (u32& x : s->v[40])
    x = B(std::ldexp(static_cast<float>(static_cast<int>(random() % 0x1000001) - 0x800000),
                     static_cast<int>(random() % 36) - 46));
  for (int r = 30; r < 36; r += 2)
    for (int l = 0; l < kLanes; ++l)
      s->Set2(r, l, B((static_cast<int>(random() % 20001) - 10000) / 7.0 + 0.5));
  s->Set(126, all ? ~u64{0} : (u64{random()} << 32 | random()));
}

}  // namespace

std::set<std::string> StateNames() {
  std::set<std::string> names;
  for (const Item& item : Items())
    if (!item.name.empty()) names.insert(item.name);
  return names;
}

namespace {

// Whether register i / 64 belongs to a result that must be, and is, a NaN.
bool BothNan(const Item& item, const State& want, const u32* got, int i) {
  const int l = i % kLanes, r = i / kLanes;
  if (item.nan_bits == 32)
    return r == 20 && std::isnan(F(want.v[20][l])) && std::isnan(F(got[i]));
  if (item.nan_bits != 64 || (r != 20 && r != 21)) return false;
  const u64 wide = got[20 * kLanes + l] | u64{got[21 * kLanes + l]} << 32;
  return std::isnan(D(want.V2(20, l))) && std::isnan(D(wide));
}

TEST(whole_register_state) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const std::vector<Item> items = Items();
  std::string source, error;
  for (const Item& item : items) source += item.text + "\n";
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  int wrong = 0;
  for (LaneCode lanes : LaneCodes()) {
    Rig rig(Isa::kGfx950, lanes);
    std::mt19937 random(29);
    size_t at = 0;
    for (const Item& item : items) {
      Inst inst;
      CHECK(Decode(Isa::kGfx950, absl::MakeConstSpan(code).subspan(at), &inst));
      for (int round = 0; round < 6; ++round) {
        State state;
        Randomise(&state, random, round % 2 == 0);
        Wave& w = rig.wave();
        std::memcpy(w.s, state.s, sizeof state.s);
        std::memcpy(w.v, state.v, sizeof state.v);
        std::memcpy(w.v + 256 * kLanes, state.a, sizeof state.a);
        w.scc = state.scc;
        item.apply(state);
        std::string what;
        if (!rig.Step(code.data() + at, inst.size)) what = w.detail;
        for (int r = 0; r < 128 && what.empty(); ++r)
          if (w.s[r] != state.s[r])
            what = absl::StrCat("s", r, " is ", absl::Hex(w.s[r]), ", not ", absl::Hex(state.s[r]));
        for (int i = 0; i < kRegisters * kLanes && what.empty(); ++i) {
          const u32 want = state.v[i / kLanes][i % kLanes];
          if (w.v[i] != want && !BothNan(item, state, w.v, i))
            what = absl::StrCat("v", i / kLanes, " lane ", i % kLanes, " is ", absl::Hex(w.v[i]),
                                ", not ", absl::Hex(want));
        }
        for (int i = 0; i < 8 * kLanes && what.empty(); ++i)
          if (w.v[256 * kLanes + i] != state.a[i / kLanes][i % kLanes])
            what = absl::StrCat("a", i / kLanes, " lane ", i % kLanes);
        if (what.empty() && w.scc != state.scc) what = absl::StrCat("scc is ", w.scc);
        if (what.empty()) continue;
        if (++wrong < 14) std::cout << "# " << item.text << ": " << what << "\n";
        break;
      }
      at += inst.size;
    }
  }
  std::cout << "# " << items.size() << " instructions on the whole state\n";
  CHECK_EQ(wrong, 0);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
