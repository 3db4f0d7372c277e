// SPDX-License-Identifier: MIT
//
// Products with weights in tiles (decoder_args.h): decode and prefill alike go through the matrix
// units, rows padded to 16, K split over the four waves in ranges fixed by its length and added in
// wave order. So a row's bits depend neither on the other rows nor on their number.
//
// Inputs are fp32, split into two bf16 (the value and what its rounding left) and multiplied twice:
// good to 2^-17 of each element. The rounded forms (bf16 activations) leave the second away.
// Products of two bf16 are exact in fp32, so of y = sum over K of w_k x_k they give, as on the CPU
// (backend/cpu/kernels.h),
//   |error| <= (2^-8 + (K + 8) 2^-23) sum of |w_k x_k|, and 2^-20 more where the input is normed,
// apart from what is below 2^-126: 2^-8 from rounding x to 8 significant bits, to nearest; no more
// than 2^-23 for each addition, in whatever order and roundings a matrix unit adds.
#ifndef MAINARCH_KERNELS_OPS_TILES_H_
#define MAINARCH_KERNELS_OPS_TILES_H_

#include "kernels/ops/step.h"

namespace mainarch::kernels {

// Eight fp32 as the two bf16 operands of a matrix instruction.
struct SplitEight {
  u32x4 high, low;
};
DEVICE SplitEight Split(Eight x) {
  SplitEight out;
  const RawEight<uint16_t> high = Pack<uint16_t>(x);
  const Eight rounded = Unpack(high);
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; ++i) {
    x.at[i] -= rounded.at[i];
  }
  out.high = high.words[0];
  out.low = Pack<uint16_t>(x).words[0];
  return out;
}
// acc += w * x over 32 of k; the small part first, unless the input is to be rounded.
template <bool kRounded>
DEVICE f32x4 MultiplyAdd(u32x4 w, const SplitEight& x, f32x4 acc) {
  if constexpr (kRounded) return isa::Mfma16x16x32Bf16(w, x.high, acc);
  return isa::Mfma16x16x32Bf16(w, x.high, isa::Mfma16x16x32Bf16(w, x.low, acc));
}

// Eight fp8 codes as bf16, exactly.
DEVICE u32x4 Fp8ToBf16(uint32_t low, uint32_t high) {
  const f32x2 a = isa::Fp8OcpToFloat2<false>(low), b = isa::Fp8OcpToFloat2<true>(low);
  const f32x2 c = isa::Fp8OcpToFloat2<false>(high), d = isa::Fp8OcpToFloat2<true>(high);
  return Pack<uint16_t>(Eight{{a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]}}).words[0];
}

// The scale of the k-th 32 columns out of four E8M0 bytes: quant::FloatFromE8m0 without a compare,
// 0 being 2^-127 and 255 a NaN.
template <uint32_t kIndex>
DEVICE float Scale(uint32_t scales) {
  const uint32_t code = scales >> (8 * kIndex) & 0xff;
  return BitCast<float>(Max(code << 23, 0x00400000u) + ((code + 1) >> 8 << 22));
}

// Lane (i, g) = (l % 16, l / 16) of a wave.
DEVICE uint32_t LaneRow() { return LaneId() % kTileRows; }
DEVICE uint32_t LanePart() { return LaneId() / kTileRows; }

// This lane's eight columns of a step, as floats (StepPlace). Steps are counted in 64 bits: with 32
// the compiler may not fold neighbouring ones into one address.
DEVICE Eight LoadStep(Global<const float> row, uint64_t step) {
  const Global<const float> at = row + step * kStepColumns + LanePart() * 4;
  return Unpack(RawEight<float>{{Load16(at, 0), Load16(at, 4)}});
}

// One lane's row of the input: eight columns at a time, normalised (kNorm) and split.
template <bool kNorm>
struct InputRow {
  Global<const float> x;     // this lane's row
  Global<const float> norm;  // [columns]
  float factor;              // of the row

  DEVICE SplitEight Load(uint64_t step) const {
    Eight in = LoadStep(x, step);
    if constexpr (kNorm) {
      const Eight w = LoadStep(norm, step);
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) in.at[i] = in.at[i] * factor * w.at[i];
    }
    return Split(in);
  }
};
DEVICE InputRow<true> MakeInput(Global<const float> x, uint32_t stride, const NormOf& norm,
                                uint32_t row) {
  return {x + uint64_t{row} * stride, At(norm.w), NormFactor(norm, row)};
}
DEVICE InputRow<false> MakeInput(Global<const float> x, uint32_t stride, uint32_t row) {
  return {x + uint64_t{row} * stride, nullptr, 1.0f};
}

// Tiles of one output tile: `data` and `scales` point at its first k tile.
struct TileRow {
  Global<const uint8_t> data;
  Global<const uint8_t> scales;
};

template <TileFormat kFormat>
DEVICE TileRow RowOf(const Tiles& w, uint32_t output) {
  return {At(w.data) + output * TileRowBytes(kFormat, w.steps),
          At(w.scales) + output * TileRowScaleBytes(kFormat, w.steps)};
}

// This lane's part of a tile of w; of bf16 pairs `low` is the second.
struct Codes {
  u32x4 high, low;
};
// The lane's word of those that start `begin` bytes into a row of tiles, which is shorter than 4
// GiB: a base in scalar registers and 32 bits in a vector register.
template <class Word>
DEVICE Word StreamLane(Global<const uint8_t> row, uint32_t begin) {
  return Stream<Word>(row + (begin + LaneId() * static_cast<uint32_t>(sizeof(Word))));
}

template <TileFormat kFormat>
DEVICE Codes LoadTile(const TileRow& w, uint32_t t) {
  Codes codes;
  codes.high = StreamLane<u32x4>(w.data, t * TileBytes(kFormat));
  if constexpr (kFormat == TileFormat::kBf16Pair) {
    codes.low = StreamLane<u32x4>(w.data, t * TileBytes(kFormat) + 1024);
  }
  return codes;
}
// The last tile, of fewer steps than others: the rest is zeros.
template <TileFormat kFormat, uint32_t kCount>
DEVICE void LoadTails(const TileRow (&w)[kCount], uint32_t t, uint32_t steps,
                      Codes (&codes)[kCount]) {
  const uint32_t begin = t * TileBytes(kFormat), two = steps / 2;  // 0 or 1
#pragma clang loop unroll(full)
  for (uint32_t j = 0; j < kCount; ++j) codes[j].high = u32x4{0, 0, 0, 0};
  if (kFormat == TileFormat::kFp8 || two != 0) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) codes[j].high.lo = StreamLane<u32x2>(w[j].data, begin);
  }
  if (kFormat == TileFormat::kMxfp4 && steps % 2 != 0) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) {
      const uint32_t last = StreamLane<uint32_t>(w[j].data, begin + two * (2 * StepBytes(kFormat)));
      codes[j].high[0] |= last & (two - 1);
      codes[j].high[2] = last & (0 - two);
    }
  }
}

// acc += (tile t of w) * x.
template <TileFormat kFormat, bool kRounded, class Input>
DEVICE f32x4 TileProduct(const TileRow& w, const Codes& codes, uint32_t t, const Input& x,
                         f32x4 acc) {
  const uint32_t c0 = codes.high[0], c1 = codes.high[1], c2 = codes.high[2], c3 = codes.high[3];
  if constexpr (kFormat == TileFormat::kBf16) {
    return MultiplyAdd<kRounded>(codes.high, x.Load(t), acc);
  } else if constexpr (kFormat == TileFormat::kBf16Pair) {
    const SplitEight in = x.Load(t);
    static_assert(!kRounded);
    return MultiplyAdd<kRounded>(codes.high, in, isa::Mfma16x16x32Bf16(codes.low, in.high, acc));
  } else if constexpr (kFormat == TileFormat::kFp8) {
    const Global<const float> scales = reinterpret_cast<Global<const float>>(w.scales) + t * 2;
    const float s0 = scales[0], s1 = scales[1];
    const f32x4 zero = {0, 0, 0, 0};
    const uint64_t step = uint64_t{t} * 2;
    const f32x4 a = MultiplyAdd<kRounded>(Fp8ToBf16(c0, c1), x.Load(step), zero);
    const f32x4 b = MultiplyAdd<kRounded>(Fp8ToBf16(c2, c3), x.Load(step + 1), zero);
    return acc + (a * s0 + b * s1);  // not fused: see the erratum in kernels/README.md
  } else {
    const uint32_t scales = *reinterpret_cast<Global<const uint32_t>>(
        w.scales + (t * TileScaleBytes(kFormat) + LaneRow() * 4));
    const uint64_t step = uint64_t{t} * 4;
    acc = MultiplyAdd<kRounded>(isa::Fp4ToBf16(c0, Scale<0>(scales)), x.Load(step), acc);
    acc = MultiplyAdd<kRounded>(isa::Fp4ToBf16(c1, Scale<1>(scales)), x.Load(step + 1), acc);
    acc = MultiplyAdd<kRounded>(isa::Fp4ToBf16(c2, Scale<2>(scales)), x.Load(step + 2), acc);
    return MultiplyAdd<kRounded>(isa::Fp4ToBf16(c3, Scale<3>(scales)), x.Load(step + 3), acc);
  }
}

// The sums of neighbouring output tiles over a wave's share of k. A tile that is not whole is
// multiplied like the others, its missing steps being zeros; only its bytes are fewer.
template <TileFormat kFormat, uint32_t kCount, bool kRounded>
struct WaveSums {
  f32x4 of[kCount];

  template <class Input>
  DEVICE WaveSums(const Tiles& w, uint32_t first, const Input& x) {
    TileRow rows[kCount];
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) {
      rows[j] = RowOf<kFormat>(w, first + j);
      of[j] = f32x4{0, 0, 0, 0};
    }
    constexpr uint32_t kSteps = TileSteps(kFormat);
    const uint32_t tiles = TilesOf(kFormat, w.steps);
    const uint32_t begin = tiles * WaveId() / kWaves, end = tiles * (WaveId() + 1) / kWaves;
    for (uint32_t t = begin; t < end; ++t) {
      Codes codes[kCount];
      const uint32_t left = w.steps - t * kSteps;
      if (kSteps == 1 || left >= kSteps) {
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kCount; ++j) codes[j] = LoadTile<kFormat>(rows[j], t);
      } else if constexpr (kSteps > 1) {
        LoadTails<kFormat>(rows, t, left, codes);
      }
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        of[j] = TileProduct<kFormat, kRounded>(rows[j], codes[j], t, x, of[j]);
      }
    }
  }
};

// The four waves' shares of a tile, added in wave order: thread t gets output t % 16 of row t / 16.
// A lane of the matrix unit holds rows 4 * (l / 16) .. + 3 (outputs) of column l % 16 (rows of x).
inline constexpr uint32_t kTileLdsBytes = kWaves * kTileRows * kTileRows * 4;
DEVICE float AddWaves(f32x4 share, Lds<float> scratch) {
  reinterpret_cast<Lds<f32x4>>(scratch)[ThreadId()] = share;
  BarrierLds();
  const uint32_t output = ThreadId() % kTileRows, row = ThreadId() / kTileRows;
  const uint32_t at = (output / 4 * kTileRows + row) * 4 + output % 4;
  float sum = scratch[at];
#pragma clang loop unroll(full)
  for (uint32_t w = 1; w < kWaves; ++w) sum += scratch[w * kTileRows * kTileRows + at];
  BarrierLds();
  return sum;
}

template <TileFormat kFormat, bool kGateUp, bool kRounded = false>
struct Matmul {
  using Args = MatmulArgs;
  static constexpr uint32_t kLdsBytes = kTileLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const bool logits = args.flags & kMatmulLogitRows;
    const uint32_t rows = logits ? step.logit_rows() : step.rows();
    const uint32_t total = args.w.outputs * CeilDiv(rows, kTileRows);
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t output = t % args.w.outputs, first = t / args.w.outputs * kTileRows;
      const uint32_t mine = Min(first + LaneRow(), rows - 1);
      const uint32_t in = logits ? step.logit_row(mine) : mine;
      const float value =
          args.norm.w.address != 0
              ? Value(args, output, MakeInput(At(args.x), args.x_stride, args.norm, in), arena)
              : Value(args, output, MakeInput(At(args.x), args.x_stride, in), arena);
      const uint32_t row = first + ThreadId() / kTileRows;
      if (row < rows) {
        At(args.out)[uint64_t{row} * args.out_stride + output * kTileRows +
                     ThreadId() % kTileRows] = value;
      }
    }
  }

  template <class Input>
  DEVICE static float Value(const Args& args, uint32_t output, const Input& x, Arena arena) {
    constexpr uint32_t kCount = kGateUp ? 2 : 1;
    const WaveSums<kFormat, kCount, kRounded> sums(args.w, kCount * output, x);
    const float value = AddWaves(sums.of[0], arena.Get<float>());
    if constexpr (!kGateUp) return value;
    return Silu(value) * AddWaves(sums.of[kCount - 1], arena.Get<float>());
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TILES_H_
