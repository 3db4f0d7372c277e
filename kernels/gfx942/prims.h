// SPDX-License-Identifier: MIT
//
// The vocabulary on gfx942. Every ISA folder's prims.h offers the same names in namespace isa;
// what the chip cannot do is made of what it can, or is absent when kFacts says so.
#ifndef MAINARCH_KERNELS_GFX942_PRIMS_H_
#define MAINARCH_KERNELS_GFX942_PRIMS_H_

#include "facts.h"
#include "kernels/common/fp8.h"
#include "kernels/common/mfma.h"
#include "kernels/common/types.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/mxfp8.h"
#include "spec.h"

namespace mainarch::kernels::gfx942 {

// ---- matrix ----

// K = 32, eight bf16 a lane: two instructions of K = 16, lower half of each lane's eight first.
DEVICE f32x4 Mfma16x16x32Bf16(u32x4 a, u32x4 b, f32x4 c) {
  c = Mfma16x16x16Bf16(a.lo, b.lo, c);
  return Mfma16x16x16Bf16(a.hi, b.hi, c);
}
DEVICE f32x4 Mfma16x16x32F16(u32x4 a, u32x4 b, f32x4 c) {
  c = Mfma16x16x16F16(a.lo, b.lo, c);
  return Mfma16x16x16F16(a.hi, b.hi, c);
}
DEVICE f32x16 Mfma32x32x16Bf16(u32x4 a, u32x4 b, f32x16 c) {
  c = Mfma32x32x8Bf16(a.lo, b.lo, c);
  return Mfma32x32x8Bf16(a.hi, b.hi, c);
}

// ---- MXFP4 and fp8 times MXFP8 ----

// This chip does not multiply them (kFacts.has_scaled_mfma): names alone, for code that is compiled for both. Who calls
// them here has an undefined symbol, which the build refuses.
struct Mxfp8Operand {
  i32x8 codes;
  uint32_t scale;
};
u32x4 TransposeRows(u32x4);
Mxfp8Operand Mxfp8OperandOf(u32x4, u32x4, uint32_t);
uint32_t LargestMagnitude(u32x4);
u32x2 Mxfp8Codes(u32x4, uint32_t);
Mxfp8Operand Mxfp8FromBf16(u32x4, u32x4, u32x4, u32x4);
f32x4 Mxfp4ByMxfp8(u32x4, uint32_t, const Mxfp8Operand&, f32x4);
i32x8 Fp8Operand(u32x4, u32x4);
f32x4 Fp8ByMxfp8(i32x8, const Mxfp8Operand&);

// ---- fp4 (E2M1) ----

// Eight codes, element 0 in the low nibble, as eight bf16 in order. Two byte tables looked up with
// v_perm: bf16 of 0, 0.5, 1, 1.5, 2, 3, 4, 6 is 0000 3f00 3f80 3fc0 4000 4040 4080 40c0.
DEVICE u32x4 Fp4ToBf16(uint32_t codes) {
  constexpr uint32_t kHigh47 = 0x40404040, kHigh03 = 0x3f3f3f00;
  constexpr uint32_t kLow47 = 0xc0804000, kLow03 = 0xc0800000;
  const uint32_t even = codes & 0x07070707, odd = codes >> 4 & 0x07070707;
  const uint32_t even_high = __builtin_amdgcn_perm(kHigh47, kHigh03, even) | (codes & 0x08080808)
                                                                                 << 4;
  const uint32_t odd_high = __builtin_amdgcn_perm(kHigh47, kHigh03, odd) | (codes & 0x80808080);
  const uint32_t even_low = __builtin_amdgcn_perm(kLow47, kLow03, even);
  const uint32_t odd_low = __builtin_amdgcn_perm(kLow47, kLow03, odd);
  // Elements (0, 2), (4, 6), (1, 3), (5, 7) as pairs of bf16.
  const uint32_t e02 = __builtin_amdgcn_perm(even_high, even_low, 0x05010400);
  const uint32_t e46 = __builtin_amdgcn_perm(even_high, even_low, 0x07030602);
  const uint32_t e13 = __builtin_amdgcn_perm(odd_high, odd_low, 0x05010400);
  const uint32_t e57 = __builtin_amdgcn_perm(odd_high, odd_low, 0x07030602);
  return u32x4{
      __builtin_amdgcn_perm(e13, e02, 0x05040100), __builtin_amdgcn_perm(e13, e02, 0x07060302),
      __builtin_amdgcn_perm(e57, e46, 0x05040100), __builtin_amdgcn_perm(e57, e46, 0x07060302)};
}
// The same as f16, an eighth of each: their low bytes are zero.
DEVICE u32x4 Fp4ToF16Eighths(uint32_t codes) {
  constexpr uint32_t kHigh47 = 0x3a383634, kHigh03 = 0x32302c00;
  const uint32_t even = codes & 0x07070707, odd = codes >> 4 & 0x07070707;
  const uint32_t evens = __builtin_amdgcn_perm(kHigh47, kHigh03, even) | (codes & 0x08080808) << 4;
  const uint32_t odds = __builtin_amdgcn_perm(kHigh47, kHigh03, odd) | (codes & 0x80808080);
  // Byte 12 of the eight is a zero.
  return u32x4{__builtin_amdgcn_perm(odds, evens, 0x040c000c), __builtin_amdgcn_perm(odds, evens, 0x050c010c),
               __builtin_amdgcn_perm(odds, evens, 0x060c020c), __builtin_amdgcn_perm(odds, evens, 0x070c030c)};
}
// The same times 2^n, `scale` being a float power of two. Exact while the product is a bf16.
DEVICE u32x4 Fp4ToBf16(uint32_t codes, float scale) {
  u32x4 pairs = Fp4ToBf16(codes);
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = pairs[i];
    const float low = BitCast<float>(pair << 16) * scale;
    const float high = BitCast<float>(pair & 0xffff0000u) * scale;
    pairs[i] = __builtin_amdgcn_perm(BitCast<uint32_t>(high), BitCast<uint32_t>(low), 0x07060302);
  }
  return pairs;
}
// The same times the E8M0 scale in byte kByte of `scales`, 0 being 2^-127 and 255 a NaN:
// quant::FloatFromE8m0 without a compare.
template <uint32_t kByte>
DEVICE u32x4 Fp4ToBf16(uint32_t codes, uint32_t scales) {
  const uint32_t code = scales >> (8 * kByte) & 0xff;
  const uint32_t bits = code << 23 < 0x00400000u ? 0x00400000u : code << 23;
  return Fp4ToBf16(codes, BitCast<float>(bits + ((code + 1) >> 8 << 22)));
}
// Codes 2 * kPair and 2 * kPair + 1 as floats.
template <int kPair>
DEVICE f32x2 Fp4ToFloat2(uint32_t codes) {
  const u32x4 pairs = Fp4ToBf16(codes);  // what is not used is not computed
  const uint32_t pair = pairs[kPair];
  return f32x2{BitCast<float>(pair << 16), BitCast<float>(pair & 0xffff0000u)};
}

// ---- fp8 ----

// Bytes 0 and 1 (kHigh: 2 and 3) of OCP e4m3fn `bytes`. The hardware reads e4m3fnuz; -0 becomes 0.
template <bool kHigh>
DEVICE f32x2 Fp8OcpToFloat2(uint32_t bytes) {
  const uint32_t low = quant::FnuzFromFn(static_cast<uint8_t>(kHigh ? bytes >> 16 : bytes));
  const uint32_t high = quant::FnuzFromFn(static_cast<uint8_t>(kHigh ? bytes >> 24 : bytes >> 8));
  const f32x2 half = NativeFp8ToFloat2<false>(low | high << 8);
  return half * quant::kFnuzScale;
}

// Eight floats that are bf16 exactly.
DEVICE u32x4 Bf16sOf(const f32x2 (&of)[4]) {
  u32x4 out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const float a = of[i][0], b = of[i][1];
    out[i] = __builtin_amdgcn_perm(BitCast<uint32_t>(b), BitCast<uint32_t>(a), 0x07060302);
  }
  return out;
}

// Eight codes of e4m3fn as bf16, exactly.
DEVICE u32x4 Fp8TileToBf16(uint32_t low, uint32_t high) {
  const f32x2 of[4] = {Fp8OcpToFloat2<false>(low), Fp8OcpToFloat2<true>(low),
                       Fp8OcpToFloat2<false>(high), Fp8OcpToFloat2<true>(high)};
  return Bf16sOf(of);
}

// The nearest bf16 of each, that with the larger magnitude of two as near; of infinities themselves. There is no
// instruction for it here, and ties to even take three more.
DEVICE uint32_t NearBf16Pair(float low, float high) {
  return __builtin_amdgcn_perm(BitCast<uint32_t>(high) + 0x8000, BitCast<uint32_t>(low) + 0x8000, 0x07060302);
}

// Eight codes of a cache or of a weight in fp8 tiles, as bf16 that are kCachedFp8Scale too small: Fp8OcpFromFloat2
// writes no negative zero, the one finite code that e4m3fnuz has not, and the host stores weights without it.
inline constexpr float kCachedFp8Scale = quant::kFnuzScale;
DEVICE u32x4 CachedFp8ToBf16(uint32_t low, uint32_t high) {
  const f32x2 of[4] = {NativeFp8ToFloat2<false>(low), NativeFp8ToFloat2<true>(low),
                       NativeFp8ToFloat2<false>(high), NativeFp8ToFloat2<true>(high)};
  return Bf16sOf(of);
}

// Two floats of magnitude at most 448 as OCP e4m3fn, in bytes 0 and 1; nearest even. A code of
// e4m3fnuz is half of what the same code is in e4m3fn.
DEVICE uint32_t Fp8OcpFromFloat2(float a, float b) {
  return NativeFp8FromFloat2<false>(a * 0.5f, b * 0.5f, 0);
}

// ---- LDS-DMA ----

inline constexpr uint32_t kLdsDmaBytes = kFacts.lds_dma_bytes;
using LdsDmaWord = uint32_t;

// Lane l's word goes to base[l]; `base` is the same in all lanes. Done when vmcnt says so.
DEVICE void LoadToLds(Global<const LdsDmaWord> from, Lds<LdsDmaWord> base) {
  __builtin_amdgcn_global_load_lds(const_cast<Global<LdsDmaWord>>(from), base, kLdsDmaBytes, 0, 0);
}
// 16 bytes a lane are more than this chip has.
DEVICE void AskToLds(Global<const uint8_t> base, uint32_t offset, uint32_t to, uint32_t further);
DEVICE void AskToLdsUnless(uint32_t skip, Global<const uint8_t> base, uint32_t offset, uint32_t to, uint32_t further);

// ---- lanes ----

// The value of the lane whose number differs in bit 5 (bit 4).
DEVICE uint32_t SwapHalves(uint32_t x) {
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(
      static_cast<int>((__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) ^ 32) *
                       4),
      static_cast<int>(x)));
}
DEVICE uint32_t SwapRows(uint32_t x) {
  return static_cast<uint32_t>(
      __builtin_amdgcn_ds_swizzle(static_cast<int>(x), 0x401f));  // xor 16 within 32 lanes
}
// The sum of a lane's value and that of the lane whose number differs in bit 5 (bit 4).
DEVICE float AddHalves(float x) {
  return x + BitCast<float>(SwapHalves(BitCast<uint32_t>(x)));
}
DEVICE float AddRows(float x) { return x + BitCast<float>(SwapRows(BitCast<uint32_t>(x))); }

}  // namespace mainarch::kernels::gfx942

namespace mainarch::kernels {
namespace isa = gfx942;
}

#endif  // MAINARCH_KERNELS_GFX942_PRIMS_H_
