// SPDX-License-Identifier: MIT
//
// A wave's sums over leaves of any number of whole tiles (ops/tall.h).
#ifndef MAINARCH_KERNELS_OPS_TALL_CHUNKS_H_
#define MAINARCH_KERNELS_OPS_TALL_CHUNKS_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

// What is to be known of a chunk: its first step, whether it has one alone (of bf16, at the end of a leaf), whether its
// leaf ends with it.
struct TallChunk {
  uint32_t bits;
  static constexpr uint32_t kHalf = 1 << 16, kEnds = 1 << 17;
  DEVICE uint32_t step() const { return bits & 0xffff; }
  DEVICE bool half() const { return (bits & kHalf) != 0; }
  DEVICE bool ends() const { return (bits & kEnds) != 0; }
};
// All chunks of a weight's k, in LDS; made by the first wave, a leaf a lane, before a barrier.
template <TileFormat kFormat>
struct TallChunks {
  static constexpr uint32_t kBytes = kTallChunks * 4;
  Lds<uint32_t> table;
  uint32_t count = 0;

  DEVICE TallChunks(const Tiles& w, uint32_t leaves, Lds<uint32_t> to) : table(to) {
    const uint32_t part = Min(LaneId() / kPartLeaves, w.parts - 1u);
    const uint32_t begin = part == 0 ? 0 : PartEnd(w, part - 1);
    const Leaf<kFormat> leaf(begin, PartEnd(w, part), LaneId() % kPartLeaves);
    const uint32_t steps = leaf.tiles * TileSteps(kFormat), own = CeilDiv(steps, kChunkSteps);
    uint32_t at = 0;
    for (uint32_t i = 0; i < leaves; ++i) {
      const uint32_t chunks = ReadLane(own, i);
      at += i < LaneId() ? chunks : 0;
      count += chunks;
    }
    if (WaveId() == 0 && LaneId() < leaves) {
      for (uint32_t i = 0; i < own; ++i) {
        const uint32_t rest = steps - i * kChunkSteps;
        table[at + i] = (leaf.step + i * kChunkSteps) | (rest < kChunkSteps ? TallChunk::kHalf : 0) |
                        (rest <= kChunkSteps ? TallChunk::kEnds : 0);
      }
    }
  }
  // Beyond the last one that once more.
  DEVICE TallChunk Of(uint32_t i) const { return {Uniform(table[Min(i, count - 1)])}; }
};

// Ends of leaves are looked for behind each chunk. Core::kHeld is two chunks.
template <class Core>
struct TallInChunks {
  using Rows = typename Core::Rows;
  using Weight = typename Core::Weight;
  using Chunks = TallChunks<Core::kTileFormat>;

  // An output tile's codes come one or two chunks ahead, x three or four. `last`: the last step of k.
  struct Plan {
    static constexpr bool kHalves = Weight::kTileSteps == 1;
    TallChunk present, next, after, ask;
    uint32_t last;
    DEVICE bool half() const { return present.half(); }
    DEVICE static bool half_tile() { return false; }
    template <uint32_t kTurn>
    DEVICE static uint32_t Mask() {
      return ~0u;
    }
    template <uint32_t kTurn>
    DEVICE void Ask(Rows* x, uint32_t i) const {
      x->template AskHalf<kTurn>(i, ask.step(), ask.half());
    }
    // Of the tile behind the one that begins in the present chunk; beyond k: the last one.
    template <uint32_t kTurn, uint32_t kTileSteps>
    DEVICE uint32_t NextTile() const {
      return kTileSteps > kChunkSteps ? after.step() / kTileSteps * kTileSteps : next.step();
    }
    template <uint32_t kStep>
    DEVICE void Reload(Weight& weight, const TileRow& row) const {
      weight.template ReloadChunk<kStep>(row, next.step(), after.step(), last);
    }
  };

  // Of `leaves` leaves, 2^n.
  DEVICE static void Sum(Core& core, const Chunks& chunks, uint32_t leaves, uint32_t last) {
    constexpr bool kTwo = Rows::kTurns == 2;
    TallChunk a = chunks.Of(0), b = chunks.Of(1), c = chunks.Of(2), d = chunks.Of(3), e = {};  // one behind the other
    if constexpr (kTwo) e = chunks.Of(4);
    core.AskFirst(a.step());
    KeepOrder();
    Bring<0>(core.x, a);
    if constexpr (kTwo) Bring<1>(core.x, b);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < Core::kOutputs; ++o) Fill<0>(core.weights[o], core.rows[o], a, b, last);
    core.template Store<0>(0);
    if constexpr (!kTwo) Bring<1>(core.x, b);
    if constexpr (kTwo) Bring<0>(core.x, c);
    core.template Store<1>(Rows::kBufferBytes);
    Bring<1>(core.x, kTwo ? d : c);
    BarrierLds();
    core.Begin();
    core.Read(0, 0, core.first);
    core.tree.Clear();
    uint32_t chunk = 0, leaf = 0;
    // Whether there is another one.
    const auto step = [&](auto turn) {
      const TallChunk more = chunks.Of(chunk + (kTwo ? 5 : 4));
      const Plan plan = {a, b, c, kTwo ? e : d, last};
      core.template Chunk<turn.kValue>(plan);
      a = b;
      b = c;
      c = d;
      d = kTwo ? e : more;
      if constexpr (kTwo) e = more;
      if (plan.present.ends()) {
        core.tree.EndLeaf(leaf++, leaves);
        if (leaf != leaves) core.tree.Clear();
      }
      return ++chunk != chunks.count;
    };
#pragma clang loop unroll(disable)
    while (step(Turn<0>()) && step(Turn<1>())) {
    }
  }

 private:
  template <uint32_t kIndex>
  struct Turn {
    static constexpr uint32_t kValue = kIndex;
  };
  template <uint32_t kTurn>
  DEVICE static void Bring(Rows* x, TallChunk chunk) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x->template AskHalf<kTurn>(i, chunk.step(), chunk.half());
  }
  // Of the first two chunks.
  template <uint32_t kStep>
  DEVICE static void Fill(Weight& weight, const TileRow& row, TallChunk a, TallChunk b, uint32_t last) {
    if constexpr (kStep < Core::kHeld) {
      const uint32_t step = (kStep < kChunkSteps ? a : b).step() + kStep % kChunkSteps;
      weight.template Load<kStep>(row, Weight::kTileSteps == 1 ? Min(step, last) : step);
      Fill<kStep + Weight::kTileSteps>(weight, row, a, b, last);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_CHUNKS_H_
