// SPDX-License-Identifier: MIT
//
// The vocabulary, word by word: each probe feeds known values through primitives and stores the
// results, for tests on the virtual node and fingerprints on silicon. Wave 0 of one workgroup
// works.
#ifndef MAINARCH_KERNELS_OPS_PROBE_H_
#define MAINARCH_KERNELS_OPS_PROBE_H_

#include "kernels/common/math.h"
#include "prims.h"

namespace mainarch::kernels {

// Writes lane values to consecutive rows of 64 words.
class Rows {
 public:
  DEVICE explicit Rows(Global<uint32_t> out) : out_(out) {}
  DEVICE void Put(uint32_t x) {
    out_[LaneId()] = x;
    out_ += kWave;
  }
  DEVICE void Put(float x) { Put(BitCast<uint32_t>(x)); }
  template <int N>
  DEVICE void Put(Vec<uint32_t, N> x) {
    for (int i = 0; i < N; ++i) {
      const uint32_t word = x[i];
      Put(word);
    }
  }
  template <int N>
  DEVICE void Put(Vec<float, N> x) {
#pragma clang loop unroll(full)
    for (int i = 0; i < N; ++i) {
      const float word = x[i];
      Put(word);
    }
  }

 private:
  Global<uint32_t> out_;
};

// in: [64] words x. Rows: 0 sum, 1 sum of float(x & 255), 2 largest of those, 3 index of the best,
// 4 x of lane ^ 21, 5-6 ballot of x & 1, 7 x of lane ^ 32, 8 x of lane ^ 16, 9 lane, 10 x of lane
// 0, 11 x of lane 17, then of f = float(x & 255) + 1: 12 exp2(f / 16), 13 log, 14 1/f, 15
// 1/sqrt(f).
struct ProbeLanes {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 16;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker != 0 || WaveId() != 0) return;
    const uint32_t x = At(args.in)[LaneId()];
    const float f = static_cast<float>(x & 255);
    Rows out(At(args.out));
    out.Put(WaveSum(x));
    out.Put(WaveSum(f));
    out.Put(WaveMax(f));
    out.Put(WaveBest({f, LaneId()}).index);
    out.Put(Shuffle(x, LaneId() ^ 21));
    const uint64_t odd = Ballot(x & 1);
    out.Put(static_cast<uint32_t>(odd));
    out.Put(static_cast<uint32_t>(odd >> 32));
    out.Put(isa::SwapHalves(x));
    out.Put(isa::SwapRows(x));
    out.Put(LaneId());
    out.Put(Uniform(x));
    out.Put(ReadLane(x, 17));
    out.Put(Exp2((f + 1) / 16));
    out.Put(Log(f + 1));
    out.Put(Rcp(f + 1));
    out.Put(Rsqrt(f + 1));
  }
};

// in: [64] words x, then [64] floats a, then [64] floats b. Rows: 0-3 eight fp4 codes of x as bf16,
// 4-7 the same times 2^(lane - 32), 8-9 codes 4 and 5 as floats, 10-13 the four bytes of x as OCP
// fp8, 14 a, b to the chip's own fp8 in bytes 0 and 1 of x, 15 in bytes 2 and 3, 16 a, b as a bf16
// pair.
struct ProbeConvert {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 17;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker != 0 || WaveId() != 0) return;
    const Global<const uint32_t> in = At(args.in);
    const uint32_t x = in[LaneId()];
    const float a = BitCast<float>(+in[kWave + LaneId()]);
    const float b = BitCast<float>(+in[2 * kWave + LaneId()]);
    Rows out(At(args.out));
    out.Put(isa::Fp4ToBf16(x));
    out.Put(isa::Fp4ToBf16(x, BitCast<float>((LaneId() + 127 - 32) << 23)));
    out.Put(isa::Fp4ToFloat2<2>(x));
    out.Put(isa::Fp8OcpToFloat2<false>(x));
    out.Put(isa::Fp8OcpToFloat2<true>(x));
    out.Put(NativeFp8FromFloat2<false>(a, b, x));
    out.Put(NativeFp8FromFloat2<true>(a, b, x));
    out.Put(ToBf16Pair(a, b));
  }
};

// in: [4][64] words of A, then [4][64] of B, as the lanes hold them. Rows of D (C is 1 everywhere):
// 0-3 16x16x16 bf16 (the first two words), 4-7 16x16x32 bf16, 8-23 32x32x8 bf16 (two words),
// 24-39 32x32x16 bf16, 40-43 16x16x32 in the chip's own fp8 (two words).
struct ProbeMatrix {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 44;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker != 0 || WaveId() != 0) return;
    const Global<const uint32_t> in = At(args.in) + LaneId();
    const u32x4 a = {in[0], in[kWave], in[2 * kWave], in[3 * kWave]};
    const u32x4 b = {in[4 * kWave], in[5 * kWave], in[6 * kWave], in[7 * kWave]};
    const f32x4 one4 = 1.0f;
    const f32x16 one16 = 1.0f;
    Rows out(At(args.out));
    out.Put(Mfma16x16x16Bf16(a.lo, b.lo, one4));
    out.Put(isa::Mfma16x16x32Bf16(a, b, one4));
    out.Put(Mfma32x32x8Bf16(a.lo, b.lo, one16));
    out.Put(isa::Mfma32x32x16Bf16(a, b, one16));
    out.Put(Mfma16x16x32Fp8(a.lo, b.lo, one4));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_PROBE_H_
