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
