// SPDX-License-Identifier: MIT
//
// What latent attention makes of a token before scores: the latent normed, what turns turned, both
// appended to their page; and the norm of queries' latents.
#ifndef MAINARCH_KERNELS_OPS_LATENT_H_
#define MAINARCH_KERNELS_OPS_LATENT_H_

#include "kernels/latent_args.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// e4m3fn: 448 is the largest number; the multiplier maps the largest element to it.
inline constexpr float kLatentFp8Largest = 448.0f;

// A page of latents (latent_args.h).
template <KvFormat kFormat>
struct LatentPage {
  static constexpr KvForm kForm = KeyForm(kFormat);
  Global<uint8_t> base;
  uint32_t turning_steps, steps;

  DEVICE Global<uint8_t> plane(uint32_t p) const { return base + p * LatentPlaneBytes(kForm, steps); }
  // Of fp8: [16 tokens], of what turns and of the latent.
  DEVICE Global<float> multipliers(uint32_t part) const {
    return reinterpret_cast<Global<float>>(plane(KvPlanes(kForm))) + part * kPageTokens;
  }
};
template <KvFormat kFormat>
DEVICE LatentPage<kFormat> LatentPageAt(Global<uint8_t> pages, uint32_t page, uint32_t turning,
                                        uint32_t latent) {
  const uint32_t turns = LatentSteps(turning);
  return {pages + uint64_t{page} * LatentPageBytes(kFormat, turning, latent), turns,
          turns + LatentSteps(latent)};
}

// A wave a (row, head), and one more a row for its key.
template <KvFormat kFormat>
struct Latent {
  using Args = LatentArgs;
  static constexpr uint32_t kLdsBytes = 0;
  // Of a latent a lane holds elements l, l + 64, l + 128 ...
  static constexpr uint32_t kHeld = kLatentMost / kWave;
  static_assert(kLatentMostTurning <= kWave);

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t units = args.heads + 1, total = step.rows() * units;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      const uint32_t row = t / units, head = t % units;
      if (head < args.heads) {
        Query(args, step, row, head);
      } else {
        Key(args, step, row);
      }
    }
  }

  // Element LaneId() of what turns, turned; zero beyond it.
  DEVICE static float Turned(const Args& args, Global<const float> from, uint32_t position) {
    const uint32_t half = args.turning / 2;
    const uint32_t i = LaneId() < half ? LaneId() : 0;  // of its pairs
    const float a = from[args.pairs != 0 ? 2 * i : i];
    const float b = from[args.pairs != 0 ? 2 * i + 1 : half + i];
    const uint64_t at = uint64_t{position} * half + i;
    const float c = At(args.cosine)[at], s = At(args.sine)[at];
    const float first = Fma(a, c, -(b * s)), second = Fma(b, c, a * s);
    const float shifted = Shuffle(second, LaneId() < half ? LaneId() : LaneId() - half);
    return LaneId() < half ? first : LaneId() < args.turning ? shifted : 0.0f;
  }

  DEVICE static void Query(const Args& args, const StepView& step, uint32_t row, uint32_t head) {
    const Global<const float> from = At(args.q) + uint64_t{row} * args.q_stride +
                                     head * (args.still + args.turning) + args.still;
    const float turned = Turned(args, from, step.position(row));
    const Global<float> to =
        At(args.qkv) + uint64_t{row} * args.qkv_stride + head * (args.turning + args.latent);
    if (LaneId() < args.turning) to[LaneId()] = turned;
  }

  DEVICE static void Key(const Args& args, const StepView& step, uint32_t row) {
    const Global<const float> from = At(args.kv) + uint64_t{row} * args.kv_stride;
    const uint32_t position = step.position(row);
    const float turned = Turned(args, from + args.latent, position);
    float latent[kHeld], sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = LaneId() + j * kWave;
      latent[j] = d < args.latent ? from[d] : 0.0f;
      sum = Fma(latent[j], latent[j], sum);
    }
    const float factor = Rsqrt(Fma(WaveSum(sum), args.inverse_latent, args.epsilon));
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = LaneId() + j * kWave;
      if (d < args.latent) latent[j] = latent[j] * factor * At(args.norm)[d];
    }
    const auto page = LatentPageAt<kFormat>(
        At(args.pages), (step.pages(row) + args.tables_at)[position / kPageTokens], args.turning, args.latent);
    Append(page, position % kPageTokens, turned, latent, args.latent);
  }

  DEVICE static void Append(const LatentPage<kFormat>& page, uint32_t token, float turned,
                            const float (&latent)[kHeld], uint32_t columns) {
    float most = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) most = __builtin_fmaxf(most, __builtin_fabsf(latent[j]));
    const float scale_turned = Multiplier(page, token, 0, __builtin_fabsf(turned));
    const float scale_latent = Multiplier(page, token, 1, most);
    if (LaneId() < page.turning_steps * kStepColumns) {
      Store(page, LatentPlace(LaneId() / kStepColumns, token, LaneId() % kStepColumns), turned,
            scale_turned);
    }
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = LaneId() + j * kWave;
      if (d >= columns) continue;
      const uint32_t step = page.turning_steps + d / kStepColumns;
      Store(page, LatentPlace(step, token, d % kStepColumns), latent[j], scale_latent);
    }
  }

  // What multiplies the codes of part `part`, stored; `magnitude`: the largest of this lane's.
  DEVICE static float Multiplier(const LatentPage<kFormat>& page, uint32_t token, uint32_t part,
                                 float magnitude) {
    if constexpr (KeyForm(kFormat) != KvForm::kFp8) return 1.0f;
    const float largest = WaveMax(magnitude);
    // Below the smallest of these everything rounds to zero anyway.
    const float scale = largest > 0x1p-117f ? largest * (1.0f / kLatentFp8Largest) : 1.0f;
    if (LaneId() == 0) page.multipliers(part)[token] = scale;
    return scale;
  }

  DEVICE static void Store(const LatentPage<kFormat>& page, uint32_t at, float x, float scale) {
    if constexpr (KeyForm(kFormat) == KvForm::kFp8) {
      page.plane(0)[at] = static_cast<uint8_t>(isa::Fp8OcpFromFloat2(x / scale, 0.0f));
    } else {
#pragma clang loop unroll(full)
      for (uint32_t p = 0; p < KvPlanes(KeyForm(kFormat)); ++p) {
        const uint16_t bits = ToBf16(x);
        reinterpret_cast<Global<uint16_t>>(page.plane(p))[at] = bits;
        x -= FromBf16(bits);
      }
    }
  }
};

// A norm of rows of any width, of which nothing but split rows is wanted. A workgroup a row.
struct NormSplit {
  using Args = NormSplitArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows();
    for (uint32_t row = worker; row < rows; row += workers) {
      const Global<const float> y = At(args.y) + uint64_t{row} * args.stride;
      float sum = 0;
      for (uint32_t c = ThreadId() * kPieceColumns; c < args.width; c += kRowChunk) {
        const RowPiece piece = *PieceAt(y + c);
        const float a = piece[0], b = piece[1];
        sum = Fma(a, a, Fma(b, b, sum));
      }
      const float squares = GroupSum<kWaves>(sum, arena.Get<float>());
      const float factor = Rsqrt(Fma(squares, args.inverse_width, args.epsilon));
      for (uint32_t c = ThreadId() * kPieceColumns; c < args.width; c += kRowChunk) {
        const RowPiece value = *PieceAt(y + c) * factor * *PieceAt(At(args.norm) + c);
        StoreSplitPiece(At(args.out) + uint64_t{row} * args.stride, c, value);
      }
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_LATENT_H_
