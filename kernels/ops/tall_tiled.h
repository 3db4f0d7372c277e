// SPDX-License-Identifier: MIT
//
// Of products of many rows (ops/tall.h): weights of bf16 by rows rounded to bf16 that lie in tiles, as the weight does
// (Taken::kTiled). To the bit what Taken::kRounded makes, of leaves of blocks.
//
// What bounds such a product is what a compute unit asks of its L2: of split rows every line is asked for whole, and half of it
// is what rounding left. So rows are made tiles once, by a launch of their own. Rows and the weight go past registers, into a
// ring of steps in LDS: that leaves registers for 128 rows, and asks for a step as many ahead as the ring has.
#ifndef MAINARCH_KERNELS_OPS_TALL_TILED_H_
#define MAINARCH_KERNELS_OPS_TALL_TILED_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

struct TileRows {
  using Args = TakenRowsArgs;
  static constexpr uint32_t kLdsBytes = 0;

  // A wave makes four neighbouring steps of a tile of rows, of which a row beyond the last is that one again.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t rows = StepView(args.step).rows(), blocks = args.steps / kTallBlock;
    for (uint32_t t = worker * kWaves + WaveId(); t < CeilDiv(rows, kTileRows) * blocks; t += workers * kWaves) {
      const uint32_t tile = t / blocks, step = (t - tile * blocks) * kTallBlock;
      const uint32_t row = Min(tile * kTileRows + LaneRow(), rows - 1);
      const auto x = reinterpret_cast<Global<const uint8_t>>(At(args.x) + uint64_t{row} * args.x_stride) +
                     (step * kSplitStepBytes + LanePart() * 16);
      const Global<uint8_t> out = At(args.out) + uint64_t{tile * args.steps + step} * kRowTileBytes + LaneId() * 16;
      u32x4 values[kTallBlock];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kTallBlock; ++i) values[i] = *reinterpret_cast<Global<const u32x4>>(x + i * kSplitStepBytes);
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kTallBlock; ++i) *reinterpret_cast<Global<u32x4>>(out + i * kRowTileBytes) = values[i];
    }
  }
};

// A ring of steps in LDS: of a step the tiles of each wave's outputs, `kOut` of each, and those of the workgroup's rows.
template <uint32_t kTiles, uint32_t kOut>
struct TallRowsInLds<Taken::kTiled, kTiles, kOut> {
  static constexpr uint32_t kRowTiles = kTiles, kRows = kRowTiles * kTileRows, kWords = 1;
  static constexpr uint32_t kSlotBytes = (kWaves * kOut + kRowTiles) * kRowTileBytes;
  static constexpr uint32_t kSlots = isa::kFacts.lds_bytes / kSlotBytes, kLdsBytes = kSlots * kSlotBytes;
  static constexpr uint32_t kOwn = kRowTiles / kWaves, kAsks = kOut + kOwn;  // tiles that a wave brings: of rows; of a step
  static_assert(kRowTiles % kWaves == 0);

  Global<const uint8_t> x[kOwn];
  Lds<uint8_t> lds;

  template <class List>
  DEVICE TallRowsInLds(const MatmulArgs& args, const List& list, Lds<uint8_t> ring) : lds(ring) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t tile = list.In(args, (WaveId() * kOwn + i) * kTileRows) / kTileRows;
      x[i] = reinterpret_cast<Global<const uint8_t>>(At(args.x)) + Uniform(uint64_t{tile} * args.w.steps * kRowTileBytes);
    }
  }
};

template <class RowsInLds, uint32_t kOut, uint32_t kLevels>
struct TallTiledCore {
  using Rows = RowsInLds;
  static constexpr uint32_t kOutputs = kOut, kRowTiles = Rows::kRowTiles, kAsks = Rows::kAsks, kSlots = Rows::kSlots;
  static constexpr uint32_t kMeeting = 3;  // behind so many products of a step waves meet: what they read last has come
  using Tree = TallTurnsTree<Rows, kOut, kLevels>;
  using Sums = typename Tree::Sums;

  const TileRow (&rows)[kOut];
  Rows* x;
  u32x4 w[kOut], in[kRowTiles];  // of the step that is multiplied, as far as it is not, and of the next one
  uint32_t ask, last;            // this lane's place of the step that is asked for next, and of the last step
  uint32_t free, own, behind;    // slots of the step before the one that is multiplied, of that one and of the next
  uint32_t weights_to, rows_to;  // where in LDS this wave's tiles begin in the first slot
  Tree tree;

  DEVICE TallTiledCore(const TileRow (&tiles)[kOut], Rows* ring) : rows(tiles), x(ring) {}
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return tree.sums[0][output][tile]; }

  // `parts` of four leaves of `steps` steps, in all at least as many as the ring has.
  DEVICE void Sum(uint32_t parts, uint32_t steps) {
    ask = LaneId() * 16;
    last = (parts * kPartLeaves * steps - 1) * kRowTileBytes + ask;
    weights_to = reinterpret_cast<uint32_t>(x->lds) + WaveId() * (kOut * kRowTileBytes);
    rows_to = reinterpret_cast<uint32_t>(x->lds) + (kWaves * kOut + WaveId() * Rows::kOwn) * kRowTileBytes;
#pragma clang loop unroll(disable)
    for (uint32_t slot = 0; slot + 1 < kSlots; ++slot) AskStep(slot * Rows::kSlotBytes);
    WaitVectorMemoryBut<(kSlots - 2) * kAsks>();
    BarrierLds();
    free = (kSlots - 1) * Rows::kSlotBytes;
    own = 0;
    behind = Rows::kSlotBytes;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) w[o] = ReadWeight(0, o);
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < kRowTiles; ++r) in[r] = ReadRows(0, r);
    TallInTurns<TallTiledCore>::Sum(*this, parts, steps);
    WaitVectorMemory();
    BarrierLds();
  }

  // A step, the first of a leaf or not. Where a weight's tile, or the rows', has been multiplied for the last time the next step's
  // takes its place. What is asked for goes where the step before this one was.
  template <bool kFirst>
  DEVICE void Multiply(Sums& to) {
    constexpr uint32_t kPlaces = kOut * kRowTiles;
    uint32_t asked = 0;
#pragma clang loop unroll(full)
    for (uint32_t place = 0; place < kPlaces; ++place) {
      const uint32_t o = place / kRowTiles, r = place % kRowTiles;
      to[o][r] = MatrixStep(w[o], in[r], kFirst ? f32x4{0, 0, 0, 0} : to[o][r]);
      KeepOrder();
      for (; asked < AskedBy(place); ++asked) Ask(free, asked);
      if (place == kMeeting) {
        // The next step is there, and all waves have read this one.
        WaitVectorMemoryBut<(kSlots - 3) * kAsks + AskedBy(kMeeting)>();
        BarrierLds();
      }
      if (r + 1 == kRowTiles) w[o] = ReadWeight(behind, o);
      if (o + 1 == kOut) in[r] = ReadRows(behind, r);
      KeepOrder();
    }
    NextAsk();
    free = own;
    own = behind;
    behind = behind + Rows::kSlotBytes < Rows::kLdsBytes ? behind + Rows::kSlotBytes : 0;
  }

 private:
  static constexpr uint32_t AskedBy(uint32_t place) { return (place + 1) * kAsks / (kOut * kRowTiles); }

  // Tile i of what this wave brings of a step, into a slot.
  DEVICE void Ask(uint32_t slot, uint32_t i) const {
    if (i < kOut) {
      isa::AskToLds(rows[i].data, ask, weights_to + slot, i * kRowTileBytes);
    } else {
      isa::AskToLds(x->x[i - kOut], ask, rows_to + slot, (i - kOut) * kRowTileBytes);
    }
  }
  DEVICE void NextAsk() { ask = Min(ask + kRowTileBytes, last); }
  DEVICE void AskStep(uint32_t slot) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kAsks; ++i) Ask(slot, i);
    NextAsk();
  }
  DEVICE u32x4 ReadWeight(uint32_t slot, uint32_t o) const { return Read(slot, WaveId() * kOut + o); }
  DEVICE u32x4 ReadRows(uint32_t slot, uint32_t r) const { return Read(slot, kWaves * kOut + r); }
  DEVICE u32x4 Read(uint32_t slot, uint32_t tile) const {
    return *reinterpret_cast<Lds<u32x4>>(x->lds + (slot + LaneId() * 16) + tile * kRowTileBytes);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_TILED_H_
