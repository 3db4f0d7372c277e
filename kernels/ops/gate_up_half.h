// SPDX-License-Identifier: MIT
//
// Gate and up of few rows, where a workgroup for each output tile of both would leave compute units idle: two workgroups have
// one, each eight of its columns, of gate and of up as one tile of 16 rows of weights. So each has what it makes of both, and
// nobody waits for another. A column's bits are those of ops/matmul.h: the matrix instruction makes each of its own row, and
// a wave's leaf is added up as there.
#ifndef MAINARCH_KERNELS_OPS_GATE_UP_HALF_H_
#define MAINARCH_KERNELS_OPS_GATE_UP_HALF_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/gating.h"
#include "kernels/ops/tiles.h"
#include "kernels/tall_args.h"

namespace mainarch::kernels {

// The sums of a leaf of whole tiles. There are few such workgroups, so that each wave has registers for all weights of kMost
// groups of tiles: they are asked for at once, and inputs two groups ahead.
template <TileFormat kFormat, Columns kColumns>
struct LeafAtOnce {
  static constexpr uint32_t kGroup = kFormat == TileFormat::kBf16 ? 8 : 4, kMost = TileSteps(kFormat) == 4 ? 2 : 4;
  using Sums = f32x4[1][Operand<kColumns>::kWords];
  f32x4 of;

  // `real`: the lane has a row.
  DEVICE LeafAtOnce(const HalvesRow& row, Leaf<kFormat> leaf, const Operand<kColumns>& x, bool real) {
    using Leaves = LeafSums<kFormat, kColumns, 1>;
    Sums sums;
    f32x4 to[1];
    Leaves::Clear(sums);
#pragma clang loop unroll(disable)
    for (; leaf.tiles >= kMost * kGroup;) Add<kGroup, kMost>(row, leaf, x, real, sums);
    if constexpr (kMost > 2) {
      if (leaf.tiles >= 2 * kGroup) Add<kGroup, 2>(row, leaf, x, real, sums);
    }
    if (leaf.tiles >= kGroup) Add<kGroup, 1>(row, leaf, x, real, sums);
    if constexpr (kGroup > 4) {
      if (leaf.tiles >= 4) Add<4, 1>(row, leaf, x, real, sums);
    }
    if (leaf.tiles >= 2) Add<2, 1>(row, leaf, x, real, sums);
    if (leaf.tiles >= 1) Add<1, 1>(row, leaf, x, real, sums);
    Leaves::Join(sums, to);
    of = to[0];
  }

 private:
  template <uint32_t kTiles, uint32_t kGroups>
  DEVICE static void Add(const HalvesRow& row, Leaf<kFormat>& leaf, const Operand<kColumns>& x, bool real, Sums& sums) {
    constexpr uint32_t kSteps = kTiles * TileSteps(kFormat);
    TileBatch<kFormat, kColumns, kTiles, 1> of[kGroups];
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      of[g].step = leaf.step + g * kSteps;
      of[g].tiles[0].Load(row, of[g].step);
      KeepOrder();
      if (g >= 2) continue;
      of[g].Clear();
      if (real) of[g].in.Load(x, of[g].step);
      KeepOrder();
    }
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      of[g].AddTo(sums);
      KeepOrder();
      if (g + 2 >= kGroups) continue;
      of[g + 2].in = of[g].in;  // zeros where there is no row
      if (real) of[g + 2].in.Load(x, of[g + 2].step);
      KeepOrder();
    }
    leaf.tiles -= kGroups * kTiles;
    leaf.step += kGroups * kSteps;
  }
};

template <TileFormat kFormat, Taken kTaken = Taken::kBoth>
struct GateUpHalf {
  using Args = GateUpAnyArgs;
  static constexpr uint32_t kLdsBytes = kTileLdsBytes;
  static constexpr Columns kColumns = ColumnsOf(kTaken, /*few=*/true);
  static constexpr uint32_t kHalf = HalvesRow::kHalf;

  DEVICE static void Run(const Args&, uint32_t worker, uint32_t workers, Arena arena) {
    FetchArguments<Args>();
    const uint32_t outputs = ReadArgumentsAgain<Args>().product.w.outputs;
    // Of each eight output tiles the first halves, then the others: both of one come to the same die, which has lines of scales once.
    constexpr uint32_t kBlock = TallGrid::kDies;
#pragma clang loop unroll(disable)
    for (uint32_t t = worker; t < 2 * outputs; t += workers) {
      const uint32_t first = t / (2 * kBlock) * kBlock, place = t % (2 * kBlock), block = Min(kBlock, outputs - first);
      const uint32_t half = place >= block ? 1 : 0;
      OneHalf(first + place - half * block, half, arena);
    }
  }

 private:
  DEVICE static void OneHalf(uint32_t output, uint32_t half, Arena arena) {
    const MatmulArgs args = ReadArgumentsAgain<Args>().product;
    const uint32_t row = ThreadId() / kTileRows, rows = StepView(args.step).rows();
    const auto x = Operand<kColumns>::Of(At(args.x), args.x_stride, Min(Operand<kColumns>::Row(), args.rows - 1));
    const HalvesRow tiles = HalvesOf<kFormat>(args.w, 2 * output, half);
    const LeafAtOnce<kFormat, kColumns> sums(tiles, Leaf<kFormat>(0, args.w.steps, WaveId()), x, Operand<kColumns>::Row() < args.rows);
    const Args after = ReadArgumentsAgain<Args>();
    const RowFactor factor(after.product.norm, row, row < rows);
    const float value = AddWaves(sums.of, arena.Get<float>()) * factor.Value(after.product.norm);
    const float up = RotateRow8(value);  // a lane has gate of a column, or up of that of the lane eight before it
    const uint32_t place = ThreadId() % kTileRows;
    if (place < kHalf && row < rows) Store(after, row, output * kTileRows + half * kHalf + place, value, up);
  }
  DEVICE static void Store(const Args& args, uint32_t row, uint32_t column, float gate, float up) {
    const bool plain = (args.product.flags & kMatmulGated) == 0;
    const float value = plain ? Silu(gate) * up : Gating(args.gating, 0, column).Value(args.gating, gate, up);
    StoreSplit(At(args.product.out) + uint64_t{row} * args.product.out_stride, column, value);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_GATE_UP_HALF_H_
