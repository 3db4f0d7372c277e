// SPDX-License-Identifier: MIT
//
// A wave's sums over leaves that are all of blocks (ops/tall.h).
#ifndef MAINARCH_KERNELS_OPS_TALL_SUMS_H_
#define MAINARCH_KERNELS_OPS_TALL_SUMS_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

template <class Core>
struct TallBlocks {
  using Rows = typename Core::Rows;
  using Weight = typename Core::Weight;

  // Of a block that begins at `step`; `last`: where the last one does, which is all that there is beyond the end. An
  // output tile's codes come a block ahead, x four chunks ahead, or three where registers hold one turn of it.
  struct Plan {
    static constexpr bool kHalves = false;
    uint32_t step, last;
    DEVICE static bool half_tile() { return false; }
    template <uint32_t kTurn>
    DEVICE static uint32_t Mask() {
      return ~0u;
    }
    template <uint32_t kTurn>
    DEVICE void Ask(Rows* x, uint32_t i) const {
      const uint32_t next = Min(step + kBlockSteps, last), after = Min(step + 2 * kBlockSteps, last);
      const uint32_t ask = Rows::kTurns == 2 ? after + kTurn * kChunkSteps : kTurn == 0 ? next + kChunkSteps : after;
      x->template Ask<kTurn>(i, ask);
    }
    // Where the tile behind the one that begins in chunk kTurn does.
    template <uint32_t kTurn, uint32_t kTileSteps>
    DEVICE uint32_t NextTile() const {
      return kTileSteps == kChunkSteps && kTurn == 0 ? step + kChunkSteps : Min(step + kBlockSteps, last);
    }
    template <uint32_t kStep>
    DEVICE void Reload(Weight& weight, const TileRow& row) const {
      weight.template ReloadBlock<kStep>(row, step, Min(step + kBlockSteps, last));
    }
  };

  // Of `leaves` leaves, 2^n, of `blocks` blocks each.
  DEVICE static void Sum(Core& core, uint32_t leaves, uint32_t blocks) {
    const uint32_t last = (leaves * blocks - 1) * kBlockSteps, next = Min(kBlockSteps, last);
    core.AskFirst(0);
    KeepOrder();
    Bring<0>(core.x, 0);
    if constexpr (Rows::kTurns == 2) Bring<1>(core.x, kChunkSteps);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < Core::kOutputs; ++o) Fill<0>(core.weights[o], core.rows[o]);
    core.template Store<0>(0);
    if constexpr (Rows::kTurns == 1) Bring<1>(core.x, kChunkSteps);
    if constexpr (Rows::kTurns == 2) Bring<0>(core.x, next);
    core.template Store<1>(Rows::kBufferBytes);
    Bring<1>(core.x, next + (Rows::kTurns == 2 ? kChunkSteps : 0));
    BarrierLds();
    core.Begin();
    core.Read(0, 0, core.first);
    uint32_t step = 0;
#pragma clang loop unroll(disable)
    for (uint32_t leaf = 0; leaf < leaves; ++leaf) {
      core.tree.Clear();
#pragma clang loop unroll(disable)
      for (uint32_t b = 0; b < blocks; ++b) {
        core.template Chunk<0>(Plan{step, last});
        core.template Chunk<1>(Plan{step, last});
        step += kBlockSteps;
      }
      core.tree.EndLeaf(leaf, leaves);
    }
  }

 private:
  template <uint32_t kTurn>
  DEVICE static void Bring(Rows* x, uint32_t step) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x->template Ask<kTurn>(i, step);
  }
  template <uint32_t kTile>
  DEVICE static void Fill(Weight& weight, const TileRow& row) {
    if constexpr (kTile < Weight::kTiles) {
      weight.template Load<kTile * Weight::kTileSteps>(row, kTile * Weight::kTileSteps);
      Fill<kTile + 1>(weight, row);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_SUMS_H_
