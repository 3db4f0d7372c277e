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

// One lane's row of the input: eight columns at a time, normalised and split.
struct InputRow {
  Global<const float> x;     // this lane's row
  Global<const float> norm;  // [columns], or null
  float factor;              // of the row
  bool has_norm;

  // Columns 32 * step + 8 * part .. + 7.
  DEVICE SplitEight Load(uint32_t step) const {
    const uint32_t eight = step * 4 + LanePart();
    Eight in = LoadEight(x, eight);
    if (has_norm) {
      const Eight w = LoadEight(norm, eight);
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) in.at[i] = in.at[i] * factor * w.at[i];
    }
    return Split(in);
  }
};
DEVICE InputRow MakeInput(Global<const float> x, uint32_t stride, const NormOf& norm,
                          uint32_t row) {
  const bool has_norm = norm.w.address != 0;
  return {x + uint64_t{row} * stride, At(norm.w), has_norm ? NormFactor(norm, row) : 1.0f,
          has_norm};
}

// Tiles of one output tile: `data` and `scales` point at its first k tile.
struct TileRow {
  Global<const uint8_t> data;
  Global<const uint8_t> scales;
};

template <TileFormat kFormat>
DEVICE TileRow RowOf(const Tiles& w, uint32_t output) {
  const uint64_t first = uint64_t{output} * w.k;
  return {At(w.data) + first * TileBytes(kFormat), At(w.scales) + first * TileScaleBytes(kFormat)};
}

// acc += (k tile `t` of w) * x.
template <TileFormat kFormat, bool kRounded>
DEVICE f32x4 TileProduct(const TileRow& w, uint32_t t, const InputRow& x, f32x4 acc) {
  constexpr uint32_t kWords = TileBytes(kFormat) / 16;
  const uint64_t at = uint64_t{t} * kWords + LaneId();
  if constexpr (kFormat == TileFormat::kBf16) {
    return MultiplyAdd<kRounded>(Stream16(w.data, at), x.Load(t), acc);
  } else if constexpr (kFormat == TileFormat::kBf16Pair) {
    const u32x4 high = Stream16(w.data, at), low = Stream16(w.data, at + kWave);
    const SplitEight in = x.Load(t);
    static_assert(!kRounded);
    return MultiplyAdd<kRounded>(high, in, isa::Mfma16x16x32Bf16(low, in.high, acc));
  } else if constexpr (kFormat == TileFormat::kFp8) {
    const u32x4 codes = Stream16(w.data, at);
    const uint32_t c0 = codes[0], c1 = codes[1], c2 = codes[2], c3 = codes[3];
    const Global<const float> scales = reinterpret_cast<Global<const float>>(w.scales) + t * 2;
    const float s0 = scales[0], s1 = scales[1];
    const f32x4 zero = {0, 0, 0, 0};
    const f32x4 a = MultiplyAdd<kRounded>(Fp8ToBf16(c0, c1), x.Load(2 * t), zero);
    const f32x4 b = MultiplyAdd<kRounded>(Fp8ToBf16(c2, c3), x.Load(2 * t + 1), zero);
    return acc + (a * s0 + b * s1);  // not fused: see the erratum in kernels/README.md
  } else {
    const u32x4 codes = Stream16(w.data, at);
    const uint32_t c0 = codes[0], c1 = codes[1], c2 = codes[2], c3 = codes[3];
    const uint32_t scales =
        reinterpret_cast<Global<const uint32_t>>(w.scales)[t * kTileRows + LaneRow()];
    acc = MultiplyAdd<kRounded>(isa::Fp4ToBf16(c0, Scale<0>(scales)), x.Load(4 * t), acc);
    acc = MultiplyAdd<kRounded>(isa::Fp4ToBf16(c1, Scale<1>(scales)), x.Load(4 * t + 1), acc);
    acc = MultiplyAdd<kRounded>(isa::Fp4ToBf16(c2, Scale<2>(scales)), x.Load(4 * t + 2), acc);
    return MultiplyAdd<kRounded>(isa::Fp4ToBf16(c3, Scale<3>(scales)), x.Load(4 * t + 3), acc);
  }
}

// The sums of one or two output tiles over a wave's share of k.
struct TwoSums {
  f32x4 a, b;
};
template <TileFormat kFormat, bool kTwo, bool kRounded>
DEVICE TwoSums WaveSums(const Tiles& w, uint32_t output, const InputRow& x) {
  const TileRow a = RowOf<kFormat>(w, kTwo ? 2 * output : output);
  const TileRow b = RowOf<kFormat>(w, kTwo ? 2 * output + 1 : output);
  const uint32_t begin = w.k * WaveId() / kWaves, end = w.k * (WaveId() + 1) / kWaves;
  TwoSums sums = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  for (uint32_t t = begin; t < end; ++t) {
    sums.a = TileProduct<kFormat, kRounded>(a, t, x, sums.a);
    if constexpr (kTwo) sums.b = TileProduct<kFormat, kRounded>(b, t, x, sums.b);
  }
  return sums;
}

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
      const InputRow x =
          MakeInput(At(args.x), args.x_stride, args.norm, logits ? step.logit_row(mine) : mine);
      const TwoSums sums = WaveSums<kFormat, kGateUp, kRounded>(args.w, output, x);
      float value = AddWaves(sums.a, arena.Get<float>());
      if constexpr (kGateUp) value = Silu(value) * AddWaves(sums.b, arena.Get<float>());
      const uint32_t row = first + ThreadId() / kTileRows;
      if (row < rows) {
        At(args.out)[uint64_t{row} * args.out_stride + output * kTileRows +
                     ThreadId() % kTileRows] = value;
      }
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TILES_H_
