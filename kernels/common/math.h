// SPDX-License-Identifier: MIT
//
// Arithmetic: bf16 <-> fp32, exp, sigmoid, workgroup sums. The build has -ffp-contract=off: what is
// fused is written Fma, so that a body gives the same bits in its own kernel and in the resident
// one, at every optimisation level.
#ifndef MAINARCH_KERNELS_COMMON_MATH_H_
#define MAINARCH_KERNELS_COMMON_MATH_H_

#include "kernels/common/memory.h"
#include "kernels/common/sync.h"
#include "kernels/common/types.h"
#include "kernels/common/wave.h"

namespace mainarch::kernels {

DEVICE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// bf16 pairs as they lie in memory: element 0 in the low half.
DEVICE float Bf16Low(uint32_t pair) { return BitCast<float>(pair << 16); }
DEVICE float Bf16High(uint32_t pair) { return BitCast<float>(pair & 0xffff0000u); }
DEVICE float FromBf16(uint16_t bits) { return BitCast<float>(static_cast<uint32_t>(bits) << 16); }
// Round to nearest, ties to even; v_cvt_pk_bf16_f32 where the chip has it.
DEVICE uint16_t ToBf16(float x) { return BitCast<uint16_t>(static_cast<__bf16>(x)); }
DEVICE uint32_t ToBf16Pair(float low, float high) {
  return ToBf16(low) | static_cast<uint32_t>(ToBf16(high)) << 16;
}
DEVICE float RoundBf16(float x) { return FromBf16(ToBf16(x)); }

inline constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e430p-1f;
// v_exp_f32 and v_log_f32 are base 2 and good to about 1 ULP; inputs below -126 give 0 or flush.
DEVICE float Exp2(float x) { return __builtin_amdgcn_exp2f(x); }
DEVICE float Exp(float x) { return Exp2(x * kLog2E); }
// x must be normal and positive.
DEVICE float Log(float x) { return __builtin_amdgcn_logf(x) * kLn2; }
DEVICE float Rcp(float x) { return __builtin_amdgcn_rcpf(x); }
DEVICE float Rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
DEVICE float Sigmoid(float x) { return Rcp(1.0f + Exp(-x)); }
// x * sigmoid(x)
DEVICE float Silu(float x) { return x * Rcp(1.0f + Exp(-x)); }

// Sum over the workgroup in wave order, in every thread. `scratch`: one word a wave. Ends with
// the scratch free again.
template <uint32_t kWaves, class T>
DEVICE T GroupSum(T x, Lds<T> scratch) {
  const T wave_sum = WaveSum(x);
  if (LaneId() == 0) scratch[WaveId()] = wave_sum;
  BarrierLds();
  T sum = scratch[0];
  for (uint32_t w = 1; w < kWaves; ++w) sum += scratch[w];
  BarrierLds();
  return sum;
}
template <uint32_t kWaves>
DEVICE float GroupMax(float x, Lds<float> scratch) {
  const float wave_max = WaveMax(x);
  if (LaneId() == 0) scratch[WaveId()] = wave_max;
  BarrierLds();
  float best = scratch[0];
  for (uint32_t w = 1; w < kWaves; ++w) best = __builtin_fmaxf(best, scratch[w]);
  BarrierLds();
  return best;
}
// `scratch`: two words a wave.
template <uint32_t kWaves>
DEVICE Scored GroupBest(Scored x, Lds<uint32_t> scratch) {
  const Scored wave_best = WaveBest(x);
  if (LaneId() == 0) {
    scratch[2 * WaveId()] = BitCast<uint32_t>(wave_best.score);
    scratch[2 * WaveId() + 1] = wave_best.index;
  }
  BarrierLds();
  Scored best = {BitCast<float>(+scratch[0]), scratch[1]};
  for (uint32_t w = 1; w < kWaves; ++w) {
    best = Better(best, {BitCast<float>(+scratch[2 * w]), scratch[2 * w + 1]});
  }
  BarrierLds();
  return best;
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_MATH_H_
