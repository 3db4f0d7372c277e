// SPDX-License-Identifier: MIT
//
// Who am I (lane, wave, workgroup) and what the 64 lanes of a wave tell each other: DPP moves,
// reads of one lane, and reductions in a fixed order, so that a sum has the same bits on every
// run and every chip. Every function that moves data between lanes needs all 64 lanes active:
// DPP from a lane that is off keeps the old value.
#ifndef MAINARCH_KERNELS_COMMON_WAVE_H_
#define MAINARCH_KERNELS_COMMON_WAVE_H_

#include "kernels/common/types.h"

namespace mainarch::kernels {

DEVICE uint32_t ThreadId() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE uint32_t WorkgroupId() { return __builtin_amdgcn_workgroup_id_x(); }

// Lane number from the hardware (mbcnt), not from the thread id: right for any workgroup shape.
DEVICE uint32_t LaneId() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

// The same value in all lanes, moved to a scalar register so that the compiler knows it.
DEVICE uint32_t Uniform(uint32_t x) { return __builtin_amdgcn_readfirstlane(x); }
DEVICE uint64_t Uniform(uint64_t x) {
  return uint64_t{Uniform(static_cast<uint32_t>(x >> 32))} << 32 | Uniform(static_cast<uint32_t>(x));
}
DEVICE float Uniform(float x) {
  return BitCast<float>(__builtin_amdgcn_readfirstlane(BitCast<uint32_t>(x)));
}
// The same value; what is computed of it is computed after this, not before the loop that it is in:
// conditions kept from there on take two scalar registers each.
DEVICE uint32_t MadeHere(uint32_t uniform) {
  __asm__ volatile("" : "+s"(uniform));
  return uniform;
}
// The same of what differs between lanes: it is computed before what follows, not where it is used.
template <class T>
DEVICE T MadeBefore(T x) {
  __asm__ volatile("" : "+v"(x));
  return x;
}
// Wave number within the workgroup.
DEVICE uint32_t WaveId() { return Uniform(ThreadId() / kWave); }

DEVICE uint32_t ReadLane(uint32_t x, uint32_t lane) { return __builtin_amdgcn_readlane(x, lane); }
DEVICE float ReadLane(float x, uint32_t lane) {
  return BitCast<float>(__builtin_amdgcn_readlane(BitCast<uint32_t>(x), lane));
}

// Any lane reads any lane.
DEVICE uint32_t Shuffle(uint32_t x, uint32_t lane) {
  return static_cast<uint32_t>(
      __builtin_amdgcn_ds_bpermute(static_cast<int>(lane * 4), static_cast<int>(x)));
}
DEVICE float Shuffle(float x, uint32_t lane) {
  return BitCast<float>(Shuffle(BitCast<uint32_t>(x), lane));
}
DEVICE uint64_t Ballot(bool x) { return __builtin_amdgcn_ballot_w64(x); }

// DPP controls (the dpp_ctrl field of GFX9).
inline constexpr int kDppQuad1032 = 0xb1, kDppQuad2301 = 0x4e;  // of each four lanes
inline constexpr int kDppRowShr1 = 0x111, kDppRowShr2 = 0x112, kDppRowShr4 = 0x114,
                     kDppRowShr8 = 0x118;
inline constexpr int kDppRowRor1 = 0x121, kDppRowRor2 = 0x122, kDppRowRor4 = 0x124,
                     kDppRowRor8 = 0x128;
inline constexpr int kDppRowNewBcast0 = 0x150;  // lane 0 of each row to all of it; + n: lane n
inline constexpr int kDppRowBcast15 = 0x142;  // lane 15 of each row to all of the next row
inline constexpr int kDppRowBcast31 = 0x143;  // lane 31 to rows 2 and 3

// One step: lanes with a valid source get it, others get `old`.
template <int kControl, int kRowMask = 0xf>
DEVICE uint32_t Dpp(uint32_t old, uint32_t x) {
  return __builtin_amdgcn_update_dpp(old, x, kControl, kRowMask, 0xf, false);
}
template <int kControl, int kRowMask = 0xf>
DEVICE float Dpp(float old, float x) {
  return BitCast<float>(Dpp<kControl, kRowMask>(BitCast<uint32_t>(old), BitCast<uint32_t>(x)));
}

// The value of the lane whose number differs in bit 3.
DEVICE float RotateRow8(float x) { return Dpp<kDppRowRor8>(x, x); }
DEVICE uint32_t RotateRow8(uint32_t x) { return Dpp<kDppRowRor8>(x, x); }
// The value of lane kLane of each 16 neighbouring lanes, in all of them.
template <int kLane>
DEVICE float RowLane(float x) {
  return BitCast<float>(static_cast<uint32_t>(__builtin_amdgcn_mov_dpp(
      static_cast<int>(BitCast<uint32_t>(x)), kDppRowNewBcast0 + kLane, 0xf, 0xf, true)));
}
// The same of a lane that is known once loops are unrolled.
DEVICE float RowLane(float x, uint32_t lane) {
  switch (lane) {
    case 0: return RowLane<0>(x);
    case 1: return RowLane<1>(x);
    case 2: return RowLane<2>(x);
    case 3: return RowLane<3>(x);
    case 4: return RowLane<4>(x);
    case 5: return RowLane<5>(x);
    case 6: return RowLane<6>(x);
    case 7: return RowLane<7>(x);
    case 8: return RowLane<8>(x);
    case 9: return RowLane<9>(x);
    case 10: return RowLane<10>(x);
    case 11: return RowLane<11>(x);
    case 12: return RowLane<12>(x);
    case 13: return RowLane<13>(x);
    case 14: return RowLane<14>(x);
    default: return RowLane<15>(x);
  }
}
// The sum over each 16 neighbouring lanes, in all of them, added in one order.
DEVICE float SumRow16(float x) {
  x += Dpp<kDppRowRor8>(x, x);
  x += Dpp<kDppRowRor4>(x, x);
  x += Dpp<kDppRowRor2>(x, x);
  return x + Dpp<kDppRowRor1>(x, x);
}

// The largest of each 16 neighbouring lanes, in all of them.
DEVICE float MaxRow16(float x) {
  x = __builtin_fmaxf(x, Dpp<kDppRowRor8>(x, x));
  x = __builtin_fmaxf(x, Dpp<kDppRowRor4>(x, x));
  x = __builtin_fmaxf(x, Dpp<kDppRowRor2>(x, x));
  return __builtin_fmaxf(x, Dpp<kDppRowRor1>(x, x));
}

// The largest of each 4 neighbouring lanes, in all of them.
DEVICE uint32_t QuadMax(uint32_t x) {
  const uint32_t other = static_cast<uint32_t>(__builtin_amdgcn_mov_dpp(static_cast<int>(x), kDppQuad1032, 0xf, 0xf, true));
  x = x > other ? x : other;
  const uint32_t others = static_cast<uint32_t>(__builtin_amdgcn_mov_dpp(static_cast<int>(x), kDppQuad2301, 0xf, 0xf, true));
  return x > others ? x : others;
}

// Folds the wave in the order of a binary tree over lanes (neighbours first) and returns the result
// in every lane. `op(mine, other)`; `other` is `identity` where a lane has no partner in a step.
template <class T, class Op>
DEVICE T WaveFold(T x, T identity, Op op) {
  x = op(x, Dpp<kDppRowShr1>(identity, x));
  x = op(x, Dpp<kDppRowShr2>(identity, x));
  x = op(x, Dpp<kDppRowShr4>(identity, x));
  x = op(x, Dpp<kDppRowShr8>(identity, x));
  x = op(x, Dpp<kDppRowBcast15, 0xa>(identity, x));
  x = op(x, Dpp<kDppRowBcast31, 0xc>(identity, x));
  return ReadLane(x, 63);
}
DEVICE float WaveSum(float x) {
  return WaveFold(x, 0.0f, [](float a, float b) { return a + b; });
}
DEVICE uint32_t WaveSum(uint32_t x) {
  return WaveFold(x, 0u, [](uint32_t a, uint32_t b) { return a + b; });
}
DEVICE uint32_t WaveMax(uint32_t x) {
  return WaveFold(x, 0u, [](uint32_t a, uint32_t b) { return a < b ? b : a; });
}
// The sum over the lanes before this one.
DEVICE uint32_t SumBefore(uint32_t x) {
  uint32_t sum = x;
  sum += Dpp<kDppRowShr1>(0, sum);
  sum += Dpp<kDppRowShr2>(0, sum);
  sum += Dpp<kDppRowShr4>(0, sum);
  sum += Dpp<kDppRowShr8>(0, sum);
  sum += Dpp<kDppRowBcast15, 0xa>(0, sum);
  sum += Dpp<kDppRowBcast31, 0xc>(0, sum);
  return sum - x;
}
DEVICE float WaveMax(float x) {
  return WaveFold(x, -__builtin_inff(), [](float a, float b) { return __builtin_fmaxf(a, b); });
}

// A score and who has it. The better one: higher score, then lower index; NaN never wins.
struct Scored {
  float score;
  uint32_t index;
};
DEVICE Scored Better(Scored a, Scored b) {
  const bool take_b = b.score > a.score || (b.score == a.score && b.index < a.index);
  return take_b ? b : a;
}
inline constexpr Scored kNobody = {-__builtin_inff(), ~0u};

template <int kControl, int kRowMask>
DEVICE Scored BetterStep(Scored x) {
  const Scored other = {Dpp<kControl, kRowMask>(x.score, x.score),
                        Dpp<kControl, kRowMask>(x.index, x.index)};
  return Better(x, other);
}
DEVICE Scored WaveBest(Scored x) {
  x = BetterStep<kDppRowShr1, 0xf>(x);
  x = BetterStep<kDppRowShr2, 0xf>(x);
  x = BetterStep<kDppRowShr4, 0xf>(x);
  x = BetterStep<kDppRowShr8, 0xf>(x);
  x = BetterStep<kDppRowBcast15, 0xa>(x);
  x = BetterStep<kDppRowBcast31, 0xc>(x);
  return {ReadLane(x.score, 63), ReadLane(x.index, 63)};
}

// Where this wave runs. Values of `s_getreg_b32 hwreg(id, offset, size)`.
template <int kId, int kOffset, int kSize>
DEVICE uint32_t GetReg() {
  return __builtin_amdgcn_s_getreg(kId | kOffset << 6 | (kSize - 1) << 11);
}
// Ticks of 10 ns, of the GPU.
DEVICE uint64_t RealTime() { return __builtin_amdgcn_s_memrealtime(); }

inline constexpr int kHwRegHwId = 4, kHwRegXccId = 20;
DEVICE uint32_t XccId() { return GetReg<kHwRegXccId, 0, 4>(); }
// Which of its XCD's compute units: HW_ID of GFX9 has cu_id [11:8], sh_id [12], se_id [15:13].
DEVICE uint32_t UnitId() { return GetReg<kHwRegHwId, 8, 8>(); }

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_WAVE_H_
