// SPDX-License-Identifier: MIT
//
// Products with weights in tiles (decoder_args.h): decode and prefill alike go through the matrix
// units, rows padded to 16, K cut into parts and leaves fixed by the weight's shape, which waves sum
// alone and add in a tree. So a row's bits depend neither on the other rows nor on their number, nor
// on how many ranks share K.
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

#include "kernels/common/tree.h"
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

// The lane's word of those that start `begin` bytes into a row of tiles, which is shorter than 4
// GiB: a base in scalar registers and 32 bits in a vector register.
template <class Word>
DEVICE Word StreamLane(Global<const uint8_t> row, uint32_t begin) {
  return Stream<Word>(row + (begin + LaneId() * static_cast<uint32_t>(sizeof(Word))));
}
// This lane's part of a whole tile of w; of bf16 pairs `low` is the second.
struct Codes {
  u32x4 high, low;
};
template <TileFormat kFormat>
DEVICE Codes LoadTile(const TileRow& w, uint32_t step) {
  Codes codes;
  codes.high = StreamLane<u32x4>(w.data, step * StepBytes(kFormat));
  if constexpr (kFormat == TileFormat::kBf16Pair) {
    codes.low = StreamLane<u32x4>(w.data, step * StepBytes(kFormat) + 1024);
  }
  return codes;
}

// acc += w * x over one step of fp8.
template <bool kRounded>
DEVICE f32x4 Fp8Step(uint32_t low, uint32_t high, const SplitEight& x) {
  return MultiplyAdd<kRounded>(Fp8ToBf16(low, high), x, f32x4{0, 0, 0, 0});
}
// The E8M0 scales of this lane's row for `count` steps from `step`, one a byte. They lie by fours
// of all of k, which the steps of a part need not begin with.
DEVICE uint32_t Mxfp4Scales(const TileRow& w, uint32_t step, uint32_t count) {
  const uint32_t at = step / 4 * TileScaleBytes(TileFormat::kMxfp4) + LaneRow() * 4;
  const uint32_t word = *reinterpret_cast<Global<const uint32_t>>(w.scales + at);
  const uint32_t skip = step % 4;
  if (skip == 0) return word;
  uint32_t next = 0;
  if (skip + count > 4) {
    next = *reinterpret_cast<Global<const uint32_t>>(
        w.scales + (at + TileScaleBytes(TileFormat::kMxfp4)));
  }
  return static_cast<uint32_t>((uint64_t{next} << 32 | word) >> 8 * skip);
}
template <bool kRounded, uint32_t kIndex, class Input>
DEVICE f32x4 Mxfp4Step(uint32_t codes, uint32_t scales, uint32_t step, const Input& x, f32x4 acc) {
  const u32x4 w = isa::Fp4ToBf16(codes, Scale<kIndex>(scales));
  return MultiplyAdd<kRounded>(w, x.Load(uint64_t{step} + kIndex), acc);
}

// acc += (the whole tile of w at `step`) * x.
template <TileFormat kFormat, bool kRounded, class Input>
DEVICE f32x4 TileProduct(const TileRow& w, const Codes& codes, uint32_t step, const Input& x,
                         f32x4 acc) {
  const uint32_t c0 = codes.high[0], c1 = codes.high[1], c2 = codes.high[2], c3 = codes.high[3];
  if constexpr (kFormat == TileFormat::kBf16) {
    return MultiplyAdd<kRounded>(codes.high, x.Load(step), acc);
  } else if constexpr (kFormat == TileFormat::kBf16Pair) {
    const SplitEight in = x.Load(step);
    static_assert(!kRounded);
    return MultiplyAdd<kRounded>(codes.high, in, isa::Mfma16x16x32Bf16(codes.low, in.high, acc));
  } else if constexpr (kFormat == TileFormat::kFp8) {
    const Global<const float> scales = reinterpret_cast<Global<const float>>(w.scales) + step;
    const float s0 = scales[0], s1 = scales[1];
    const f32x4 a = Fp8Step<kRounded>(c0, c1, x.Load(step));
    const f32x4 b = Fp8Step<kRounded>(c2, c3, x.Load(uint64_t{step} + 1));
    return acc + (a * s0 + b * s1);  // not fused: see the erratum in kernels/README.md
  } else {
    const uint32_t scales = Mxfp4Scales(w, step, 4);
    acc = Mxfp4Step<kRounded, 0>(c0, scales, step, x, acc);
    acc = Mxfp4Step<kRounded, 1>(c1, scales, step, x, acc);
    acc = Mxfp4Step<kRounded, 2>(c2, scales, step, x, acc);
    return Mxfp4Step<kRounded, 3>(c3, scales, step, x, acc);
  }
}

// acc[j] += (the last tile of w[j]'s part, with `left` steps, fewer than others) * x.
template <TileFormat kFormat, bool kRounded, uint32_t kCount, class Input>
DEVICE void AddTail(const TileRow (&w)[kCount], uint32_t step, uint32_t left, const Input& x,
                    f32x4 (&acc)[kCount]) {
  if constexpr (kFormat == TileFormat::kFp8) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) {
      const u32x2 codes = StreamLane<u32x2>(w[j].data, step * StepBytes(kFormat));
      const float scale = reinterpret_cast<Global<const float>>(w[j].scales)[step];
      const uint32_t low = codes[0], high = codes[1];
      acc[j] = acc[j] + Fp8Step<kRounded>(low, high, x.Load(step)) * scale;
    }
  } else if constexpr (kFormat == TileFormat::kMxfp4) {
    if (left >= 2) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        const u32x2 codes = StreamLane<u32x2>(w[j].data, step * StepBytes(kFormat));
        const uint32_t c0 = codes[0], c1 = codes[1], scales = Mxfp4Scales(w[j], step, 2);
        acc[j] = Mxfp4Step<kRounded, 0>(c0, scales, step, x, acc[j]);
        acc[j] = Mxfp4Step<kRounded, 1>(c1, scales, step, x, acc[j]);
      }
      step += 2;
    }
    if (left % 2 != 0) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        const uint32_t codes = StreamLane<uint32_t>(w[j].data, step * StepBytes(kFormat));
        acc[j] = Mxfp4Step<kRounded, 0>(codes, Mxfp4Scales(w[j], step, 1), step, x, acc[j]);
      }
    }
  }
}

// One leaf of neighbouring output tiles: the sums over quarter `quarter` of the tiles of the part
// of k that is steps [begin, end).
template <TileFormat kFormat, uint32_t kCount, bool kRounded>
struct LeafSums {
  f32x4 of[kCount];

  template <class Input>
  DEVICE LeafSums(const TileRow (&rows)[kCount], uint32_t begin, uint32_t end, uint32_t quarter,
                  const Input& x) {
    constexpr uint32_t kSteps = TileSteps(kFormat);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) of[j] = f32x4{0, 0, 0, 0};
    const uint32_t tiles = TilesOf(kFormat, end - begin);
    const uint32_t last = tiles * (quarter + 1) / kPartLeaves;
#pragma clang loop unroll(disable)
    for (uint32_t t = tiles * quarter / kPartLeaves; t < last; ++t) {
      const uint32_t step = begin + t * kSteps;
      if (kSteps == 1 || end - step >= kSteps) {
        Codes codes[kCount];
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kCount; ++j) codes[j] = LoadTile<kFormat>(rows[j], step);
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kCount; ++j) {
          of[j] = TileProduct<kFormat, kRounded>(rows[j], codes[j], step, x, of[j]);
        }
      } else if constexpr (kSteps > 1) {
        AddTail<kFormat, kRounded>(rows, step, end - step, x, of);
      }
    }
  }
};

// A k that is one part: each wave takes a leaf.
template <TileFormat kFormat, uint32_t kCount, bool kRounded>
struct WaveSums : LeafSums<kFormat, kCount, kRounded> {
  template <class Input>
  DEVICE WaveSums(const Tiles& w, uint32_t first, const Input& x)
      : LeafSums<kFormat, kCount, kRounded>(Rows(w, first).of, 0, w.steps, WaveId(), x) {}

 private:
  struct Rows {
    TileRow of[kCount];
    DEVICE Rows(const Tiles& w, uint32_t first) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) of[j] = RowOf<kFormat>(w, first + j);
    }
  };
};

// A k of one or more parts: take(i, sum) gets the wave's leaves of an output tile one by one, i
// from 0 to parts - 1.
template <TileFormat kFormat, bool kRounded, class Input, class Take>
DEVICE void ForEachLeaf(const Tiles& w, uint32_t output, const Input& x, Take take) {
  const TileRow rows[1] = {RowOf<kFormat>(w, output)};
  const uint32_t ends = PartEnd(w, LaneId());  // of the lane's part
#pragma clang loop unroll(disable)
  for (uint32_t i = 0; i < w.parts; ++i) {
    const uint32_t leaf = WaveId() * w.parts + i, part = leaf / kPartLeaves;
    const uint32_t begin = part == 0 ? 0 : ReadLane(ends, part - 1), end = ReadLane(ends, part);
    const LeafSums<kFormat, 1, kRounded> sums(rows, begin, end, leaf % kPartLeaves, x);
    take(i, sums.of[0]);
  }
}

// The sum of a wave's leaves, in the tree, as they come. All sums are made, and those that end kept:
// with branches the registers of every way would count.
struct LeafTree {
  static_assert(kMaxParts == 8);
  f32x4 one = {}, two = {}, four = {}, sum = {};  // of so many leaves; of all, when all have come

  DEVICE void Push(uint32_t index, f32x4 value) {
    const uint32_t carries = TreeCarries(index);
    const f32x4 of_two = one + value, of_four = two + of_two, of_eight = four + of_four;
    one = carries == 0 ? value : one;
    two = carries == 1 ? of_two : two;
    four = carries == 2 ? of_four : four;
    sum = carries == 0 ? value : carries == 1 ? of_two : carries == 2 ? of_four : of_eight;
  }
};

// The four waves' sums of a tile, added in the tree: thread t gets output t % 16 of row t / 16.
// A lane of the matrix unit holds rows 4 * (l / 16) .. + 3 (outputs) of column l % 16 (rows of x).
inline constexpr uint32_t kTileLdsBytes = kWaves * kTileRows * kTileRows * 4;
DEVICE float AddWaves(f32x4 share, Lds<float> scratch) {
  reinterpret_cast<Lds<f32x4>>(scratch)[ThreadId()] = share;
  BarrierLds();
  const uint32_t output = ThreadId() % kTileRows, row = ThreadId() / kTileRows;
  const uint32_t at = (output / 4 * kTileRows + row) * 4 + output % 4;
  float sums[kWaves];
#pragma clang loop unroll(full)
  for (uint32_t w = 0; w < kWaves; ++w) sums[w] = scratch[w * kTileRows * kTileRows + at];
  AddTree(sums, kWaves, [](float a, float b) { return a + b; });
  BarrierLds();
  return sums[0];
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
        const uint32_t to = row + (logits ? Parity(step.index()) * args.parity_rows : 0);
        At(args.out)[uint64_t{to} * args.out_stride + output * kTileRows +
                     ThreadId() % kTileRows] = value;
      }
    }
  }

  template <class Input>
  DEVICE static float Value(const Args& args, uint32_t output, const Input& x, Arena arena) {
    if constexpr (kGateUp) {
      const WaveSums<kFormat, 2, kRounded> sums(args.w, 2 * output, x);
      const float gate = AddWaves(sums.of[0], arena.Get<float>());
      return Silu(gate) * AddWaves(sums.of[1], arena.Get<float>());
    } else {
      LeafTree tree;
      ForEachLeaf<kFormat, kRounded>(args.w, output, x,
                                     [&](uint32_t i, f32x4 sum) { tree.Push(i, sum); });
      return AddWaves(tree.sum, arena.Get<float>());
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TILES_H_
