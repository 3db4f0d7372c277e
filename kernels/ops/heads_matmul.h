// SPDX-License-Identifier: MIT
//
// Products of each head with a matrix of its own, in tiles as ops/tiles.h has them: k is one part, of
// four leaves, a wave each. So a row's bits depend neither on other rows nor on which rank has the head.
//
// What goes in is either what attention leaves, split rows, or what a product leaves, fp32: then heads
// begin anywhere, and rows are split on the way in.
#ifndef MAINARCH_KERNELS_OPS_HEADS_MATMUL_H_
#define MAINARCH_KERNELS_OPS_HEADS_MATMUL_H_

#include "kernels/latent_args.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/tiles.h"

namespace mainarch::kernels {

// Operand of a row of fp32.
template <Columns kColumns>
struct PlainOperand {
  Global<const float> row;  // of this lane, the head's first column
  uint32_t columns;

  DEVICE u32x4 Load(uint64_t step, uint32_t word) const {
    const uint32_t first = static_cast<uint32_t>(step) * kStepColumns + LanePart() * 4;
    const f32x4 a = Four(first), b = Four(first + 16);
    const SplitEight both = Split({{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}});
    const bool low = kColumns == Columns::kFew ? LaneRow() >= kFewRows : word == 1;
    return low ? both.low : both.high;
  }
  // Zeros beyond the head.
  DEVICE f32x4 Four(uint32_t column) const {
    const bool real = column < columns;
    const f32x4 four = *reinterpret_cast<Global<const f32x4>>(row + (real ? column : 0));
    return real ? four : f32x4{0, 0, 0, 0};
  }
};

template <TileFormat kFormat>
struct HeadsMatmul {
  using Args = HeadsMatmulArgs;
  static constexpr uint32_t kLdsBytes = kTileLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    if (args.rows <= kFewRows) {
      Units<Columns::kFew>(args, worker, workers, arena);
    } else {
      Units<Columns::kMany>(args, worker, workers, arena);
    }
  }

  // A unit: an output tile of a head, and a block of rows.
  template <Columns kColumns>
  DEVICE static void Units(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows(), units = args.heads * args.w.outputs;
    const uint32_t total = units * CeilDiv(rows, kTileRows);
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t first = t / units * kTileRows, unit = t % units;
      const uint32_t head = unit / args.w.outputs, output = unit % args.w.outputs;
      const uint32_t mine = Min(first + Operand<kColumns>::Row(), args.rows - 1);
      const Global<const float> x =
          At(args.x) + uint64_t{mine} * args.x_stride + (args.x_at + head * args.x_step);
      TileRow w = RowOf<kFormat>(args.w, output);
      w.data += head * args.head_bytes;
      w.scales += head * args.head_scale_bytes;
      const Leaf<kFormat> leaf(0, args.w.steps, WaveId());
      f32x4 sum;
      if (args.x_split != 0) {
        sum = LeafOf<kColumns>(w, leaf, Operand<kColumns>::Of(x, 0, 0));
      } else {
        sum = LeafOf<kColumns>(w, leaf, PlainOperand<kColumns>{x, args.columns});
      }
      const float value = AddWaves(sum, arena.Get<float>());
      Store(Again(args), head, output, first + ThreadId() / kTileRows, rows, value);
    }
  }

  // Factors of fp8 and the ways of codes fill the scalar registers.
  DEVICE static Args Again(const Args& args) {
    if constexpr (HasCodes(kFormat) || kFormat == TileFormat::kFp8) {
      return ReadArgumentsAgain<Args>();
    } else {
      return args;
    }
  }

  template <Columns kColumns, class In>
  DEVICE static f32x4 LeafOf(const TileRow& w, Leaf<kFormat> leaf, const In& x) {
    f32x4 sums[Operand<kColumns>::kWords];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) sums[i] = f32x4{0, 0, 0, 0};
    constexpr uint32_t kBatch = HasCodes(kFormat) ? 1 : 2;  // as scalar registers hold
#pragma clang loop unroll(disable)
    for (; leaf.tiles >= kBatch; leaf.tiles -= kBatch) Take<kBatch, kColumns>(w, leaf, x, sums);
    if (kBatch > 1 && leaf.tiles != 0) Take<1, kColumns>(w, leaf, x, sums);
    ForEachTailTile<kFormat>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
      u32x4 in[piece.kSteps][Operand<kColumns>::kWords];
      piece.Load(w, step);
      LoadInputs<kColumns>(x, step, in);
      piece.template Add<kColumns>(step, in, sums);
    });
    return JoinColumns<kColumns>(sums);
  }
  template <uint32_t kTiles, Columns kColumns, class In>
  DEVICE static void Take(const TileRow& w, Leaf<kFormat>& leaf, const In& x,
                          f32x4 (&sums)[Operand<kColumns>::kWords]) {
    constexpr uint32_t kSteps = TileSteps(kFormat);
    WholeTiles<kFormat, kTiles> tiles;
    tiles.Load(w, leaf.step);
    KeepOrder();
    u32x4 in[kTiles][kSteps][Operand<kColumns>::kWords];
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      LoadInputs<kColumns>(x, uint64_t{leaf.step} + t * kSteps, in[t]);
    }
    tiles.MakeScales();
    WithCode<kFormat>(tiles.row.Code(), [&](auto tag) {
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) {
        AddTile<kFormat, kTiles, kColumns>(tiles, t, leaf.step, in[t], sums, tag);
      }
    });
    leaf.step += kTiles * kSteps;
  }
  template <Columns kColumns, class In, uint32_t kSteps>
  DEVICE static void LoadInputs(const In& x, uint64_t step,
                                u32x4 (&to)[kSteps][Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSteps; ++s) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) to[s][i] = x.Load(step + s, i);
    }
  }

  // Thread t has output t % 16 of its row.
  DEVICE static void Store(const Args& args, uint32_t head, uint32_t output, uint32_t row,
                           uint32_t rows, float value) {
    const uint32_t o = output * kTileRows + ThreadId() % kTileRows;
    if (row >= rows || o >= args.width) return;
    const uint32_t column = args.out_at + head * args.out_step + o;
    const Global<float> to = At(args.out) + uint64_t{row} * args.out_stride;
    if (args.out_split != 0) {
      StoreSplit(to, column, value);
    } else {
      to[column] = value;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_HEADS_MATMUL_H_
