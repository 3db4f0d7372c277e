// SPDX-License-Identifier: MIT
//
// The vocabulary on gfx950. Every ISA folder's prims.h offers the same names in namespace isa;
// what the chip cannot do is made of what it can, or is absent when kFacts says so.
#ifndef MAINARCH_KERNELS_GFX950_PRIMS_H_
#define MAINARCH_KERNELS_GFX950_PRIMS_H_

#include "facts.h"
#include "kernels/common/fp8.h"
#include "kernels/common/mfma.h"
#include "kernels/common/types.h"
#include "kernels/quant/mxfp8.h"
#include "spec.h"

namespace mainarch::kernels::gfx950 {

// ---- matrix ----

// K = 32, eight bf16 a lane.
DEVICE f32x4 Mfma16x16x32Bf16(u32x4 a, u32x4 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_bf16(BitCast<bf16x8>(a), BitCast<bf16x8>(b), c, 0, 0,
                                                 0);
}
DEVICE f32x4 Mfma16x16x32F16(u32x4 a, u32x4 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_f16(BitCast<Vec<_Float16, 8>>(a), BitCast<Vec<_Float16, 8>>(b), c, 0, 0, 0);
}
DEVICE f32x16 Mfma32x32x16Bf16(u32x4 a, u32x4 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(BitCast<bf16x8>(a), BitCast<bf16x8>(b), c, 0, 0,
                                                 0);
}

// Formats of the f8f6f4 matrix instructions (cbsz for A, blgp for B).
enum class MxFormat : int { kFp8 = 0, kBf8 = 1, kFp6 = 2, kBf6 = 3, kFp4 = 4 };

// D += A * B over K = 128, both with one E8M0 scale for 32 elements. `a` of lane (i, g):
//   fp4, fp6: k = 32g .. 32g+31, contiguous, in the first 4 (6) words;
//   fp8, bf8: words 0-3 are k = 16g .. 16g+15, words 4-7 are k = 64+16g .. 64+16g+15.
// The scale of lane (i, g), byte 0 of scale_a, always belongs to k = 32g .. 32g+31 of row i: for
// fp8 it scales what other lanes hold. Scales must be in VGPRs (an SGPR or a constant is a hardware
// defect); the asm keeps the compiler from seeing a uniform one.
template <MxFormat kA, MxFormat kB>
DEVICE f32x4 MfmaScaled16x16x128(i32x8 a, i32x8 b, f32x4 c, uint32_t scale_a, uint32_t scale_b) {
  __asm__ volatile("" : "+v"(scale_a), "+v"(scale_b));
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
      a, b, c, static_cast<int>(kA), static_cast<int>(kB), 0, static_cast<int>(scale_a), 0,
      static_cast<int>(scale_b));
}
// K = 64, 32x32; lane (i, h) = (l % 32, l / 32): fp4, fp6 hold k = 32h..32h+31; fp8 words 0-3
// k = 16h.., words 4-7 k = 32+16h... The scale belongs to k = 32h..32h+31.
template <MxFormat kA, MxFormat kB>
DEVICE f32x16 MfmaScaled32x32x64(i32x8 a, i32x8 b, f32x16 c, uint32_t scale_a, uint32_t scale_b) {
  __asm__ volatile("" : "+v"(scale_a), "+v"(scale_b));
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
      a, b, c, static_cast<int>(kA), static_cast<int>(kB), 0, static_cast<int>(scale_a), 0,
      static_cast<int>(scale_b));
}
// Sixteen bytes of fp4 as a matrix operand.
DEVICE i32x8 Fp4Operand(u32x4 codes) {
  const Vec<int32_t, 4> low = BitCast<Vec<int32_t, 4>>(codes);
  return i32x8{low[0], low[1], low[2], low[3], 0, 0, 0, 0};
}

// ---- MXFP4 and fp8 times MXFP8 ----

// Lane (j, g) has a part of each of four blocks of 32 columns, as split rows and tiles have them: eight columns of step g. The
// matrix instruction wants of fp4 all parts of block g, of fp8 two parts of block g / 2 and two of block 2 + g / 2. Parts come in
// the order 0, 2, 1, 3 (ScaledPart of tall_args.h), with which both are a few swaps of registers between rows of lanes.

// Word b: this lane's part of block b. To all parts of block g.
DEVICE u32x4 TransposeRows(u32x4 x) {
  const auto a = __builtin_amdgcn_permlane16_swap(x[0], x[1], false, false);
  const auto b = __builtin_amdgcn_permlane16_swap(x[2], x[3], false, false);
  const auto even = __builtin_amdgcn_permlane32_swap(a[0], b[0], false, false);  // parts 0 and 2
  const auto odd = __builtin_amdgcn_permlane32_swap(a[1], b[1], false, false);
  return u32x4{even[0], even[1], odd[0], odd[1]};
}

// 128 columns of 16 rows as B of the matrix instruction: codes and the factor that this lane brings.
struct Mxfp8Operand {
  i32x8 codes;
  uint32_t scale;
};
DEVICE Mxfp8Operand Mxfp8OperandOf(u32x4 a, u32x4 b, uint32_t scale) {
  const auto low = BitCast<Vec<int32_t, 4>>(a), high = BitCast<Vec<int32_t, 4>>(b);
  return {i32x8{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]}, scale};
}
// The largest of the magnitudes of eight bf16, as its bits.
DEVICE uint32_t LargestMagnitude(u32x4 x) {
  using u16x2 = Vec<uint16_t, 2>;
  u16x2 all[4];
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = x[i];
    all[i] = BitCast<u16x2>(word & 0x7fff7fff);
  }
  const u16x2 largest = __builtin_elementwise_max(__builtin_elementwise_max(all[0], all[1]), __builtin_elementwise_max(all[2], all[3]));
  const uint32_t both = BitCast<uint32_t>(largest), upper = both >> 16, lower = both & 0xffff;
  return upper > lower ? upper : lower;
}
// Eight bf16 / 2^(scale - 127) as e4m3 codes, nearest even.
DEVICE u32x2 Mxfp8Codes(u32x4 x, uint32_t scale) {
  using s16x2 = Vec<int16_t, 2>;
  const float by = BitCast<float>(scale << 23);
  u32x2 out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) {
    const uint32_t first = x[2 * i], second = x[2 * i + 1];
    s16x2 codes = __builtin_nondeterministic_value(codes);  // both halves are written
    codes = __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(codes, BitCast<bf16x2>(first), by, false);
    codes = __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(codes, BitCast<bf16x2>(second), by, true);
    out[i] = BitCast<uint32_t>(codes);
  }
  return out;
}
// The larger of what rows of lanes have of two blocks each: rows 0 and 1 get the first one's, 2 and 3 the second one's.
DEVICE uint32_t LargerOfHalves(uint32_t first, uint32_t second) {
  const auto pair = __builtin_amdgcn_permlane32_swap(first, second, false, false);
  const uint32_t a = pair[0], b = pair[1];
  return a > b ? a : b;
}
// This lane's part of each of four blocks, as bf16.
DEVICE Mxfp8Operand Mxfp8FromBf16(u32x4 x0, u32x4 x1, u32x4 x2, u32x4 x3) {
  // Of blocks 0, 2, 1, 3 in rows of lanes 0 to 3.
  const auto largest = __builtin_amdgcn_permlane16_swap(LargerOfHalves(LargestMagnitude(x0), LargestMagnitude(x1)),
                                                        LargerOfHalves(LargestMagnitude(x2), LargestMagnitude(x3)), false, false);
  const uint32_t one = largest[0], other = largest[1];
  const uint32_t own = quant::Mxfp8Scale(one > other ? one : other);
  const auto both = __builtin_amdgcn_permlane16_swap(own, own, false, false);  // 0, 0, 1, 1 and 2, 2, 3, 3
  const auto low = __builtin_amdgcn_permlane32_swap(both[0], both[0], false, false);  // 0 everywhere, 1 everywhere
  const auto high = __builtin_amdgcn_permlane32_swap(both[1], both[1], false, false);
  const auto sorted = __builtin_amdgcn_permlane32_swap(both[0], both[1], false, false);  // 0, 0, 2, 2 and 1, 1, 3, 3
  const auto scales = __builtin_amdgcn_permlane16_swap(sorted[0], sorted[1], false, false);
  const u32x2 c0 = Mxfp8Codes(x0, low[0]), c1 = Mxfp8Codes(x1, low[1]);
  const u32x2 c2 = Mxfp8Codes(x2, high[0]), c3 = Mxfp8Codes(x3, high[1]);
  u32x4 a, b;
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) {
    const auto first = __builtin_amdgcn_permlane32_swap(c0[i], c1[i], false, false);
    const auto second = __builtin_amdgcn_permlane32_swap(c2[i], c3[i], false, false);
    a[i] = first[0];
    a[2 + i] = first[1];
    b[i] = second[0];
    b[2 + i] = second[1];
  }
  return Mxfp8OperandOf(a, b, scales[0]);
}
// c += w * x over 128 columns: of lane (i, g) 32 codes of MXFP4 of row i and block g, and their E8M0. (Scales that no two
// lanes need have alike are in VGPRs anyway: MfmaScaled16x16x128 would copy them each time.)
DEVICE f32x4 Mxfp4ByMxfp8(u32x4 w, uint32_t w_scale, const Mxfp8Operand& x, f32x4 c) {
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
      Fp4Operand(w), x.codes, c, static_cast<int>(MxFormat::kFp4), static_cast<int>(MxFormat::kFp8), 0,
      static_cast<int>(w_scale), 0, static_cast<int>(x.scale));
}

// Eight codes of each of four blocks of 32 columns, as tiles of fp8 have them: words 0 and 1 of `first` are a lane's of block 0. As
// A of the matrix instruction, in the order of Mxfp8FromBf16.
DEVICE i32x8 Fp8Operand(u32x4 first, u32x4 second) {
  i32x8 out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) {
    const auto low = __builtin_amdgcn_permlane32_swap(first[i], first[2 + i], false, false);
    const auto high = __builtin_amdgcn_permlane32_swap(second[i], second[2 + i], false, false);
    out[i] = static_cast<int32_t>(low[0]);
    out[2 + i] = static_cast<int32_t>(low[1]);
    out[4 + i] = static_cast<int32_t>(high[0]);
    out[6 + i] = static_cast<int32_t>(high[1]);
  }
  return out;
}
// w * x over 128 columns, of fp8 by MXFP8.
DEVICE f32x4 Fp8ByMxfp8(i32x8 w, const Mxfp8Operand& x) {
  uint32_t one = 127;  // as E8M0
  __asm__("" : "+v"(one));  // a constant would not be in a VGPR, as it must (MfmaScaled16x16x128); made once for all
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
      w, x.codes, f32x4{0, 0, 0, 0}, static_cast<int>(MxFormat::kFp8), static_cast<int>(MxFormat::kFp8), 0,
      static_cast<int>(one), 0, static_cast<int>(x.scale));
}

// ---- fp4 (E2M1) ----

// Eight codes, element 0 in the low nibble, as eight bf16 in order, times 2^n: the hardware reads
// the exponent field of `scale` only.
DEVICE u32x4 Fp4ToBf16(uint32_t codes, float scale) {
  return u32x4{BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 0)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 1)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 2)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes, scale, 3))};
}
DEVICE u32x4 Fp4ToBf16(uint32_t codes) { return Fp4ToBf16(codes, 1.0f); }
// The same as f16, an eighth of each.
DEVICE u32x4 Fp4ToF16Eighths(uint32_t codes) {
  return u32x4{BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes, 0.125f, 0)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes, 0.125f, 1)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes, 0.125f, 2)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes, 0.125f, 3))};
}
// The same times the E8M0 scale in byte kByte of `scales`: what lies beside the exponent field is not
// looked at.
template <uint32_t kByte>
DEVICE u32x4 Fp4ToBf16(uint32_t codes, uint32_t scales) {
  return Fp4ToBf16(codes, BitCast<float>(kByte == 3 ? scales >> 1 : scales << (23 - 8 * kByte)));
}
// Codes 2 * kPair and 2 * kPair + 1 as floats.
template <int kPair>
DEVICE f32x2 Fp4ToFloat2(uint32_t codes) {
  return __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(codes, 1.0f, kPair);
}
// a / scale and b / scale as codes in byte kByte of `keep`, nearest even, saturating.
template <int kByte>
DEVICE uint32_t Fp4FromFloat2(float a, float b, float scale, uint32_t keep) {
  return __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(keep, a, b, scale, kByte);
}

// ---- fp6 (E2M3) ----

// 32 floats, element j of `low` and `high` interleaved: code 2j from low[j], 2j + 1 from high[j].
DEVICE u32x6 Fp6FromFloat32(f32x16 low, f32x16 high, float scale) {
  return BitCast<u32x6>(__builtin_amdgcn_cvt_scalef32_2xpk16_fp6_f32(low, high, scale));
}
DEVICE Vec<float, 32> Fp6ToFloat32(u32x6 codes, float scale) {
  return __builtin_amdgcn_cvt_scalef32_pk32_f32_fp6(codes, scale);
}

// ---- fp8 ----

// Bytes 0 and 1 (kHigh: 2 and 3) of OCP e4m3fn `bytes`.
template <bool kHigh>
DEVICE f32x2 Fp8OcpToFloat2(uint32_t bytes) {
  return NativeFp8ToFloat2<kHigh>(bytes);
}

// Eight codes of e4m3fn as bf16, exactly.
DEVICE u32x4 Fp8TileToBf16(uint32_t low, uint32_t high) {
  return u32x4{BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(low, 1.0f, false)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(low, 1.0f, true)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(high, 1.0f, false)),
               BitCast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(high, 1.0f, true))};
}

// The nearest bf16 of each.
DEVICE uint32_t NearBf16Pair(float low, float high) {
  const bf16x2 pair = {static_cast<__bf16>(low), static_cast<__bf16>(high)};
  return BitCast<uint32_t>(pair);
}

// Eight codes of a cache or of a weight in fp8 tiles, as bf16 that are kCachedFp8Scale too small.
inline constexpr float kCachedFp8Scale = 1;
DEVICE u32x4 CachedFp8ToBf16(uint32_t low, uint32_t high) { return Fp8TileToBf16(low, high); }

// Two floats of magnitude at most 448 as OCP e4m3fn, in bytes 0 and 1; nearest even.
DEVICE uint32_t Fp8OcpFromFloat2(float a, float b) { return NativeFp8FromFloat2<false>(a, b, 0); }

// ---- LDS-DMA ----

inline constexpr uint32_t kLdsDmaBytes = kFacts.lds_dma_bytes;
using LdsDmaWord = u32x4;

// Lane l's word goes to base[l]; `base` is the same in all lanes. Done when vmcnt says so.
DEVICE void LoadToLds(Global<const LdsDmaWord> from, Lds<LdsDmaWord> base) {
  __builtin_amdgcn_global_load_lds(const_cast<Global<LdsDmaWord>>(from), base, kLdsDmaBytes, 0, 0);
}
// The same, from base + offset to the LDS address to + further, a constant. The compiler does not know of it: it would wait for all
// that is on its way wherever LDS is read. WaitVectorMemoryBut says when it is there.
DEVICE void AskToLds(Global<const uint8_t> base, uint32_t offset, uint32_t to, uint32_t further) {
  __asm__ volatile("s_add_u32 m0, %0, %1\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %2, %3"
                   :
                   : "s"(to), "n"(further), "v"(offset), "s"(base)
                   : "scc", "memory");
}
// The same where `skip` is zero. No branch that the compiler knows of: it would keep what lies on its two sides apart.
DEVICE void AskToLdsUnless(uint32_t skip, Global<const uint8_t> base, uint32_t offset, uint32_t to, uint32_t further) {
  __asm__ volatile(
      "s_cmp_lg_u32 %4, 0\n\ts_cbranch_scc1 1f\n\ts_add_u32 m0, %0, %1\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %2, %3\n1:"
      :
      : "s"(to), "n"(further), "v"(offset), "s"(base), "s"(skip)
      : "scc", "memory");
}

// ---- lanes ----

// The value of the lane whose number differs in bit 5 (bit 4).
DEVICE uint32_t SwapHalves(uint32_t x) {
  const auto pair = __builtin_amdgcn_permlane32_swap(x, x, false, false);
  const bool upper =
      __builtin_amdgcn_mbcnt_hi(~0u, 0) != 0 || __builtin_amdgcn_mbcnt_lo(~0u, 0) == 32;
  return upper ? pair[0] : pair[1];
}
DEVICE uint32_t SwapRows(uint32_t x) {
  const auto pair = __builtin_amdgcn_permlane16_swap(x, x, false, false);
  const uint32_t lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  return lane & 16 ? pair[0] : pair[1];
}
// The sum of a lane's value and that of the lane whose number differs in bit 5 (bit 4).
DEVICE float AddHalves(float x) {
  const uint32_t bits = BitCast<uint32_t>(x);
  const auto pair = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  return BitCast<float>(+pair[0]) + BitCast<float>(+pair[1]);
}
DEVICE float AddRows(float x) {
  const uint32_t bits = BitCast<uint32_t>(x);
  const auto pair = __builtin_amdgcn_permlane16_swap(bits, bits, false, false);
  return BitCast<float>(+pair[0]) + BitCast<float>(+pair[1]);
}

}  // namespace mainarch::kernels::gfx950

namespace mainarch::kernels {
namespace isa = gfx950;
}

#endif  // MAINARCH_KERNELS_GFX950_PRIMS_H_
