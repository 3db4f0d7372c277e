// SPDX-License-Identifier: MIT
//
// What only gfx950 has: scaled matrix instructions, fp4 and fp6 converts.
#ifndef MAINARCH_KERNELS_GFX950_PROBE_MX_H_
#define MAINARCH_KERNELS_GFX950_PROBE_MX_H_

#include "kernels/ops/probe.h"
#include "prims.h"

namespace mainarch::kernels {

// in: [8][64] words of A, [8][64] of B, [64] scale bytes of A, [64] of B, as the lanes hold them.
// Rows of D (C is 0): 0-3 16x16x128 fp4 x fp4, 4-7 fp8 x fp8, 8-11 fp6 x fp6, 12-15 fp8 x fp4,
// 16-31 32x32x64 fp4 x fp4, 32-47 32x32x64 fp8 x fp8.
struct ProbeScaledMatrix {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 48;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker != 0 || WaveId() != 0) return;
    using isa::MxFormat;
    const Global<const uint32_t> in = At(args.in) + LaneId();
    i32x8 a, b;
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) {
      a[i] = static_cast<int32_t>(in[i * kWave]);
      b[i] = static_cast<int32_t>(in[(8 + i) * kWave]);
    }
    const uint32_t scale_a = in[16 * kWave], scale_b = in[17 * kWave];
    const f32x4 zero4 = 0.0f;
    const f32x16 zero16 = 0.0f;
    Rows out(At(args.out));
    out.Put(
        isa::MfmaScaled16x16x128<MxFormat::kFp4, MxFormat::kFp4>(a, b, zero4, scale_a, scale_b));
    out.Put(
        isa::MfmaScaled16x16x128<MxFormat::kFp8, MxFormat::kFp8>(a, b, zero4, scale_a, scale_b));
    out.Put(
        isa::MfmaScaled16x16x128<MxFormat::kFp6, MxFormat::kFp6>(a, b, zero4, scale_a, scale_b));
    out.Put(
        isa::MfmaScaled16x16x128<MxFormat::kFp8, MxFormat::kFp4>(a, b, zero4, scale_a, scale_b));
    out.Put(
        isa::MfmaScaled32x32x64<MxFormat::kFp4, MxFormat::kFp4>(a, b, zero16, scale_a, scale_b));
    out.Put(
        isa::MfmaScaled32x32x64<MxFormat::kFp8, MxFormat::kFp8>(a, b, zero16, scale_a, scale_b));
  }
};

// in: [32][64] floats. Row 0: elements 0 and 1 as fp4 codes with scale 2, in byte 1 of 0xa5a5a5a5;
// 1-6: all 32 as fp6 with scale 0.5; 7-38: those codes as floats again.
struct ProbeMxConvert {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 39;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker != 0 || WaveId() != 0) return;
    const Global<const uint32_t> in = At(args.in) + LaneId();
    f32x16 low, high;
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; ++i) {
      low[i] = BitCast<float>(+in[i * kWave]);
      high[i] = BitCast<float>(+in[(16 + i) * kWave]);
    }
    Rows out(At(args.out));
    out.Put(isa::Fp4FromFloat2<1>(low[0], low[1], 2.0f, 0xa5a5a5a5u));
    const u32x6 codes = isa::Fp6FromFloat32(low, high, 0.5f);
    out.Put(codes);
    out.Put(isa::Fp6ToFloat32(codes, 0.5f));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_GFX950_PROBE_MX_H_
