// SPDX-License-Identifier: MIT
//
// fidelity.h's questions that only gfx950 raises: sums of scaled and of double-length matrix
// instructions, stochastic fp4, transposed LDS reads.
#ifndef MAINARCH_KERNELS_GFX950_FIDELITY_MX_H_
#define MAINARCH_KERNELS_GFX950_FIDELITY_MX_H_

#include "kernels/ops/fidelity.h"

namespace mainarch::kernels {

// in: [workers][22][64]: eight words of A, eight of B, four floats of C, scale bytes of A and B.
// out: [workers][kRows][64]: D of scaled 16x16x128 fp8 and fp4, of 16x16x32 bf16 (four words each);
// then words 0 and 1 of A as floats to a pair of fp4 by nearest and by stochastic rounding with
// scale 1.
struct FidelityMx {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 14;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (WaveId() != 0) return;
    using isa::MxFormat;
    const Global<const uint32_t> in = At(args.in) + worker * 22 * kWave + LaneId();
    i32x8 a, b;
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) {
      a[i] = static_cast<int32_t>(in[i * kWave]);
      b[i] = static_cast<int32_t>(in[(8 + i) * kWave]);
    }
    const f32x4 c = {BitCast<float>(+in[16 * kWave]), BitCast<float>(+in[17 * kWave]),
                     BitCast<float>(+in[18 * kWave]), BitCast<float>(+in[19 * kWave])};
    const uint32_t sa = in[20 * kWave], sb = in[21 * kWave];
    Rows out(At(args.out) + worker * kRows * kWave);
    out.Put(isa::MfmaScaled16x16x128<MxFormat::kFp8, MxFormat::kFp8>(a, b, c, sa, sb));
    out.Put(isa::MfmaScaled16x16x128<MxFormat::kFp4, MxFormat::kFp4>(a, b, c, sa, sb));
    const u32x4 a4 = {in[0], in[kWave], in[2 * kWave], in[3 * kWave]};
    const u32x4 b4 = {in[8 * kWave], in[9 * kWave], in[10 * kWave], in[11 * kWave]};
    out.Put(isa::Mfma16x16x32Bf16(a4, b4, c));
    const float x = BitCast<float>(+in[0]), y = BitCast<float>(+in[kWave]);
    out.Put(isa::Fp4FromFloat2<0>(x, y, 1.0f, 0));
    const f32x2 pair = {x, y};
    // Byte 0 only: clang 22 does not put the old value into the destination register.
    out.Put(static_cast<uint32_t>(
                __builtin_amdgcn_cvt_scalef32_sr_pk_fp4_f32(0, pair, +in[2 * kWave], 1.0f, 0)) &
            255u);
  }
};

// in: [16] words a lane, put to LDS from byte 64 * lane on. out: b64 reads of 16, 8 and 4 bits and
// the b96 read of 6 bits, each lane from byte 16 * lane (2, 2, 2 and 3 rows).
struct FidelityTranspose {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 4096;
  static constexpr uint32_t kRows = 9;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena arena) {
    const Global<const uint32_t> in = At(args.in);
    if (worker == 0 && WaveId() == 0) {
      for (uint32_t i = 0; i < 16; ++i) {
        arena.Get<uint32_t>()[i * kWave + LaneId()] = in[i * kWave + LaneId()];
      }
    }
    BarrierLds();
    if (worker != 0 || WaveId() != 0) return;
    Rows out(At(args.out));
    out.Put(
        BitCast<u32x2>(__builtin_amdgcn_ds_read_tr16_b64_v4i16(arena.Get<s16x4>(16 * LaneId()))));
    out.Put(BitCast<u32x2>(
        __builtin_amdgcn_ds_read_tr8_b64_v2i32(arena.Get<Vec<int32_t, 2>>(16 * LaneId()))));
    out.Put(BitCast<u32x2>(
        __builtin_amdgcn_ds_read_tr4_b64_v2i32(arena.Get<Vec<int32_t, 2>>(16 * LaneId()))));
    const Vec<uint32_t, 3> six = BitCast<Vec<uint32_t, 3>>(
        __builtin_amdgcn_ds_read_tr6_b96_v3i32(arena.Get<Vec<int32_t, 3>>(16 * LaneId())));
    out.Put(six);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_GFX950_FIDELITY_MX_H_
