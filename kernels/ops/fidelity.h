// SPDX-License-Identifier: MIT
//
// What only a chip can answer: the last bits of transcendental instructions, rounding of converts
// at their edges, the order and width of sums inside matrix instructions, what weak memory order
// really lets through. `mainarch probe` feeds them and prints what comes back (cli/probe.cc).
//
// Wave 0 of every workgroup works on its own rows of 64 words.
#ifndef MAINARCH_KERNELS_OPS_FIDELITY_H_
#define MAINARCH_KERNELS_OPS_FIDELITY_H_

#include "kernels/ops/probe.h"

namespace mainarch::kernels {

// in: [workers][64] floats. out: [workers][kRows][64]: exp2, log2, 1/x, 1/sqrt, sqrt, sin and cos
// of turns, fraction, x * 1, to f16, to bf16.
struct FidelityMath {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 11;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (WaveId() != 0) return;
    const float x = BitCast<float>(+At(args.in)[worker * kWave + LaneId()]);
    Rows out(At(args.out) + worker * kRows * kWave);
    out.Put(Exp2(x));
    out.Put(__builtin_amdgcn_logf(x));
    out.Put(Rcp(x));
    out.Put(Rsqrt(x));
    out.Put(__builtin_amdgcn_sqrtf(x));
    out.Put(__builtin_amdgcn_sinf(x));
    out.Put(__builtin_amdgcn_cosf(x));
    out.Put(__builtin_amdgcn_fractf(x));
    // A product that no compiler folds: 1 comes out of the lane's number.
    out.Put(x * static_cast<float>(1 + (LaneId() >> 6)));
    out.Put(uint32_t{BitCast<uint16_t>(static_cast<_Float16>(x))});
    out.Put(uint32_t{ToBf16(x)});
  }
};

// in: [workers][2][64]: floats x, words r. out: [workers][kRows][64]: the pair (x, -x) as the
// chip's own fp8 and bf8, x stochastically rounded by r to fp8 and bf8, bytes 0 of r as fp8 and
// bf8.
struct FidelityConvert {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 6;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (WaveId() != 0) return;
    const Global<const uint32_t> in = At(args.in) + worker * 2 * kWave + LaneId();
    const float x = BitCast<float>(+in[0]);
    const uint32_t r = in[kWave];
    Rows out(At(args.out) + worker * kRows * kWave);
    out.Put(NativeFp8FromFloat2<false>(x, -x, 0));
    out.Put(static_cast<uint32_t>(__builtin_amdgcn_cvt_pk_bf8_f32(x, -x, 0, false)));
    out.Put(static_cast<uint32_t>(__builtin_amdgcn_cvt_sr_fp8_f32(x, r, 0, 0)));
    out.Put(static_cast<uint32_t>(__builtin_amdgcn_cvt_sr_bf8_f32(x, r, 0, 0)));
    out.Put(__builtin_amdgcn_cvt_f32_fp8(r, 0));
    out.Put(__builtin_amdgcn_cvt_f32_bf8(r, 0));
  }
};

// in: [workers][8][64]: two words of A, two of B, four floats of C. out: [workers][kRows][64]: D of
// 16x16x16 bf16 and f16, 16x16x4 f32 (first words), 16x16x32 fp8 and bf8; a dot product of the
// first words' f16 pairs with the first C.
struct FidelityMatrix {
  using Args = ProbeArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kRows = 21;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (WaveId() != 0) return;
    const Global<const uint32_t> in = At(args.in) + worker * 8 * kWave + LaneId();
    const u32x2 a = {in[0], in[kWave]}, b = {in[2 * kWave], in[3 * kWave]};
    const f32x4 c = {BitCast<float>(+in[4 * kWave]), BitCast<float>(+in[5 * kWave]),
                     BitCast<float>(+in[6 * kWave]), BitCast<float>(+in[7 * kWave])};
    Rows out(At(args.out) + worker * kRows * kWave);
    out.Put(Mfma16x16x16Bf16(a, b, c));
    out.Put(Mfma16x16x16F16(a, b, c));
    const uint32_t a0 = a[0], b0 = b[0];
    out.Put(Mfma16x16x4F32(BitCast<float>(a0), BitCast<float>(b0), c));
    out.Put(Mfma16x16x32Fp8(a, b, c));
    out.Put(Mfma16x16x32Bf8(a, b, c));
    const float c0 = c[0];
    out.Put(__builtin_amdgcn_fdot2(BitCast<Vec<_Float16, 2>>(a0), BitCast<Vec<_Float16, 2>>(b0), c0,
                                   false));
  }
};

// Two workgroups, lane 0 of each. A round's cells: 0 and 32 (another cache line) x and y, 48 how
// many have arrived. Message passing in even rounds: worker 0 stores x, then y, relaxed; worker 1
// loads y, then x. Store buffering in odd rounds: each stores its own and loads the other's. out[2
// round + worker]: what was seen, first load in bit 0, second in bit 1.
struct FidelityOrder {
  using Args = LitmusArgs;
  static constexpr uint32_t kLdsBytes = 0;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (WaveId() != 0 || LaneId() != 0 || worker > 1) return;
    for (uint32_t round = 0; round < args.rounds; ++round) {
      const Global<uint32_t> x = At(args.cells) + round * 64, y = x + 32;
      AddFlag<Scope::kDevice>(x + 48, 1u);
      WaitFlag<Scope::kDevice>(x + 48, 2u);
      uint32_t seen = 0;
      if (round % 2 != 0) {
        StoreFlag<Scope::kDevice>(worker == 0 ? x : y, 1u);
        seen = LoadFlag<Scope::kDevice, uint32_t>(worker == 0 ? y : x);
      } else if (worker == 0) {
        StoreFlag<Scope::kDevice>(x, 1u);
        StoreFlag<Scope::kDevice>(y, 1u);
      } else {
        seen = LoadFlag<Scope::kDevice, uint32_t>(y);
        seen |= LoadFlag<Scope::kDevice, uint32_t>(x) << 1;
      }
      At(args.out)[2 * round + worker] = seen;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_FIDELITY_H_
