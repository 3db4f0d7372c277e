// SPDX-License-Identifier: MIT
//
// A wave's sums over a k that is one part and of an even number of steps, whose leaves are of any number of tiles, of MXFP4 the
// last of which may be half of one (ops/tall.h). Blocks begin at even steps, so that a chunk of x lies within k; of a block at an
// end of a leaf some steps may be those of its neighbour: x is zeros there.
#ifndef MAINARCH_KERNELS_OPS_TALL_RAGGED_H_
#define MAINARCH_KERNELS_OPS_TALL_RAGGED_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

// Its first step, and which of its steps are the leaf's, a bit each. In one register, of which there are few.
struct TallBlock {
  uint32_t bits;
  static constexpr uint32_t kAll = (1u << kBlockSteps) - 1, kOwnAt = 16;
  DEVICE uint32_t step() const { return bits & 0xffff; }
  DEVICE uint32_t own() const { return bits >> kOwnAt; }
};

// Blocks of all leaves, one behind the other. Behind the last one that again.
template <TileFormat kFormat>
struct TallBlockWalk {
  uint32_t steps, leaf = 0, begin = 0, end, step = 0;  // of k; the next block's leaf, and where that begins and ends; it begins

  DEVICE explicit TallBlockWalk(uint32_t all) : steps(all), end(End(0)) {}
  DEVICE uint32_t End(uint32_t of) const {
    return Min(TilesOf(kFormat, steps) * (of + 1) / kPartLeaves * TileSteps(kFormat), steps);
  }
  // Of a leaf.
  DEVICE uint32_t Blocks(uint32_t of) const {
    const uint32_t first = of == 0 ? 0 : End(of - 1) & ~1u;
    return CeilDiv(End(of) - first, kBlockSteps);
  }
  DEVICE TallBlock Next() {
    const uint32_t before = begin > step ? begin - step : 0, behind = step + kBlockSteps;
    const uint32_t out = step, beyond = behind > end ? behind - end : 0;
    const bool ends = behind >= end, more = ends && end != steps;
    const uint32_t next_end = End(leaf + 1);
    step = !ends ? behind : more ? end & ~1u : step;
    begin = more ? end : begin;
    end = more ? next_end : end;
    leaf += more ? 1 : 0;
    return {out | ((TallBlock::kAll << before) & (TallBlock::kAll >> beyond)) << TallBlock::kOwnAt};
  }
};

template <class Core>
struct TallRagged {
  using Rows = typename Core::Rows;
  using Weight = typename Core::Weight;

  // As TallBlocks has it.
  struct Plan {
    static constexpr bool kHalves = false;
    TallBlock present, next, after;
    uint32_t steps;  // of k
    DEVICE bool half_tile() const { return Weight::kMxfp4 && present.own() != TallBlock::kAll; }
    template <uint32_t kTurn>
    DEVICE void Ask(Rows* x, uint32_t i) const {
      const uint32_t step = Rows::kTurns == 2 ? after.step() + kTurn * kChunkSteps
                            : kTurn == 0      ? next.step() + kChunkSteps
                                              : after.step();
      AskAt<kTurn>(x, i, step, steps);
    }
    template <uint32_t kTurn>
    DEVICE uint32_t Mask() const {
      return MaskOf<kTurn>(next);
    }
    template <uint32_t kStep>
    DEVICE void Reload(Weight& weight, const TileRow& row) const {
      weight.template ReloadRagged<kStep>(row, present.step(), next.step(), steps, next.own() != TallBlock::kAll);
    }
  };

  // Of all leaves of `steps` steps.
  DEVICE static void Sum(Core& core, uint32_t steps) {
    TallBlockWalk<Core::kTileFormat> walk(steps);
    TallBlock present = walk.Next(), next = walk.Next(), after = walk.Next();
    Bring<0>(core.x, 0, steps);
    if constexpr (Rows::kTurns == 2) Bring<1>(core.x, kChunkSteps, steps);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < Core::kOutputs; ++o) Fill<0>(core.weights[o], core.rows[o], steps);
    core.template Store<0>(0, MaskOf<0>(present));
    if constexpr (Rows::kTurns == 1) Bring<1>(core.x, kChunkSteps, steps);
    if constexpr (Rows::kTurns == 2) Bring<0>(core.x, next.step(), steps);
    core.template Store<1>(Rows::kBufferBytes, MaskOf<1>(present));
    Bring<1>(core.x, next.step() + (Rows::kTurns == 2 ? kChunkSteps : 0), steps);
    BarrierLds();
    core.Read(0, 0, core.first);
#pragma clang loop unroll(disable)
    for (uint32_t leaf = 0; leaf < kPartLeaves; ++leaf) {
      core.tree.Clear();
      uint32_t left = walk.Blocks(leaf);  // one at least
#pragma clang loop unroll(disable)
      do {
        const Plan plan = {present, next, after, steps};
        core.template Chunk<0>(plan);
        core.template Chunk<1>(plan);
        present = next;
        next = after;
        after = walk.Next();
      } while (--left > 0);
      core.tree.EndLeaf(leaf, kPartLeaves);
    }
  }

 private:
  // All bits, if the step that this thread's words are of is the leaf's.
  template <uint32_t kTurn>
  DEVICE static uint32_t MaskOf(TallBlock block) {
    return 0u - (block.own() >> (kTurn * kChunkSteps + Rows::OwnStep()) & 1);
  }
  // Beyond k its last chunk.
  template <uint32_t kTurn>
  DEVICE static void AskAt(Rows* x, uint32_t i, uint32_t step, uint32_t steps) {
    x->template Ask<kTurn>(i, Min(step, steps - kChunkSteps));
  }
  template <uint32_t kTurn>
  DEVICE static void Bring(Rows* x, uint32_t step, uint32_t steps) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) AskAt<kTurn>(x, i, step, steps);
  }
  // Of the first block, of which MXFP4 has all.
  template <uint32_t kStep>
  DEVICE static void Fill(Weight& weight, const TileRow& row, uint32_t steps) {
    if constexpr (kStep < Core::kHeld) {
      weight.template LoadRagged<kStep>(row, kStep, steps, false);
      Fill<kStep + Weight::kTileSteps>(weight, row, steps);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_RAGGED_H_
