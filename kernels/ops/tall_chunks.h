// SPDX-License-Identifier: MIT
//
// A wave's sums over leaves of any number of whole tiles (ops/tall.h).
#ifndef MAINARCH_KERNELS_OPS_TALL_CHUNKS_H_
#define MAINARCH_KERNELS_OPS_TALL_CHUNKS_H_

#include "kernels/ops/tall_tiles.h"

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

// `kLevels`: of the tree, at most: there are 2^kLevels leaves. Ends of leaves are looked for behind each chunk.
template <TileFormat kFormat, class Rows, uint32_t kOut, uint32_t kLevels>
class TallChunkSums {
 public:
  static constexpr uint32_t kHeld = 2 * kChunkSteps;  // steps of the weight
  using Weight = TallWeight<kFormat, kHeld>;
  static constexpr uint32_t kRowTiles = Rows::kRowTiles, kWords = Rows::kWords;
  using Tree = TallTree<Rows, kOut, kLevels>;

  // Of `leaves` leaves, 2^n; `last`: the last step of k.
  DEVICE TallChunkSums(const TileRow (&rows)[kOut], const TallChunks<kFormat>& chunks, uint32_t leaves, uint32_t last, Rows* x)
      : rows_(rows), chunks_(chunks), x_(x), leaves_(leaves), last_(last) {
    present_ = chunks_.Of(0);
    next_ = chunks_.Of(1);
    second_ = chunks_.Of(2);
    third_ = chunks_.Of(3);
    if constexpr (Rows::kTurns == 2) fourth_ = chunks_.Of(4);
    Bring<0>(present_);
    if constexpr (Rows::kTurns == 2) Bring<1>(next_);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) Fill<0>(weights_[o], rows_[o]);
    Store<0>(0);
    if constexpr (Rows::kTurns == 1) Bring<1>(next_);
    if constexpr (Rows::kTurns == 2) Bring<0>(second_);
    Store<1>(Rows::kBufferBytes);
    Bring<1>(Rows::kTurns == 2 ? third_ : second_);
    BarrierLds();
    Read(0, 0, first_);
    tree_.Clear();
    uint32_t chunk = 0;
#pragma clang loop unroll(disable)
    while (true) {
      if (Chunk<0>(chunk)) EndLeaf();
      if (++chunk == chunks_.count) break;
      if (Chunk<1>(chunk)) EndLeaf();
      if (++chunk == chunks_.count) break;
    }
  }
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return tree_.sums[0][output][tile]; }

 private:
  template <uint32_t kStep>
  DEVICE void Fill(Weight& weight, const TileRow& row) {
    if constexpr (kStep < kHeld) {
      const uint32_t step = (kStep < kChunkSteps ? present_ : next_).step() + kStep % kChunkSteps;
      weight.template Load<kStep>(row, Weight::kTileSteps == 1 ? Min(step, last_) : step);
      Fill<kStep + Weight::kTileSteps>(weight, row);
    }
  }
  template <uint32_t kTurn>
  DEVICE void Bring(TallChunk chunk) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x_->template AskHalf<kTurn>(i, chunk.step(), chunk.half());
  }
  template <uint32_t kTurn>
  DEVICE void Store(uint32_t at) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x_->template Put<kTurn>(i, at);
  }
  DEVICE void Read(uint32_t at, uint32_t step, typename Rows::Step& to) {
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kWords; ++i) to[r][i] = x_->Get(at, step, r, i);
    }
  }

  // A chunk, the kTurn-th of two. An output tile's codes come one or two chunks ahead, x three or four to registers and
  // two to LDS, and from there a step ahead. All that stands between matrix instructions, a piece behind each few.
  // Whether a leaf ends with it.
  template <uint32_t kTurn>
  DEVICE bool Chunk(uint32_t chunk) {
    constexpr uint32_t kFirst = kTurn * kChunkSteps;
    const uint32_t own = x_->buffer, behind = x_->Behind(1), to = x_->Behind(2);
    const TallChunk present = present_, ask = Rows::kTurns == 2 ? fourth_ : third_;
    const TallChunk more = chunks_.Of(chunk + (Rows::kTurns == 2 ? 5 : 4));
    typename Rows::Step second;
    if constexpr (Weight::kFp8) {
      Read(own, 1, second);
      KeepOrder();
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; ++o) {
        const u32x4 w0 = weights_[o].template Decode<kFirst>(), w1 = weights_[o].template Decode<kFirst + 1>();
#pragma clang loop unroll(full)
        for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
          for (uint32_t i = 0; i < kWords; ++i) {
            weights_[o].template Add<kTurn>(w0, w1, first_[r][i], second[r][i], tree_.sums[i][o][r]);
          }
        }
        weights_[o].template ReloadChunk<kFirst + 1>(rows_[o], next_.step(), second_.step(), last_);
        KeepOrder();
      }
      Read(behind, 0, first_);
      Store<kTurn>(to);
      Bring<kTurn>(ask);
    } else {
      constexpr uint32_t kReads = kRowTiles * kWords;
      const auto read = [&](uint32_t at, uint32_t of, uint32_t piece, typename Rows::Step& into) {
        into[piece / kWords][piece % kWords] = x_->Get(at, of, piece / kWords, piece % kWords);
      };
      Multiply<kFirst, kReads>(first_, false, [&](uint32_t piece) { read(own, 1, piece, second); });
      Multiply<kFirst + 1, kReads + Rows::kLoads>(second, present.half(), [&](uint32_t piece) {
        if (piece < kReads) {
          read(behind, 0, piece, first_);
        } else {
          x_->template Put<kTurn>(piece - kReads, to);
          x_->template AskHalf<kTurn>(piece - kReads, ask.step(), ask.half());
        }
      });
    }
    x_->buffer = behind;
    BarrierLds();
    present_ = next_;
    next_ = second_;
    second_ = third_;
    third_ = Rows::kTurns == 2 ? fourth_ : more;
    if constexpr (Rows::kTurns == 2) fourth_ = more;
    return present.ends();
  }
  // All output tiles by step kStep of those held, which there may not be, and between them so many pieces of other work.
  template <uint32_t kStep, uint32_t kPieces, class Work>
  DEVICE void Multiply(const typename Rows::Step& x, bool none, Work work) {
    constexpr uint32_t kPlaces = kOut * kRowTiles;
    uint32_t piece = 0;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      u32x4 w = weights_[o].template Decode<kStep>();
      if constexpr (Weight::kTileSteps == 1 && kStep % kChunkSteps != 0) w = w & (none ? 0u : ~0u);
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) tree_.sums[i][o][r] = MatrixStep(w, x[r][i], tree_.sums[i][o][r]);
        KeepOrder();
        const uint32_t place = o * kRowTiles + r;
#pragma clang loop unroll(full)
        for (; piece < (place + 1) * kPieces / kPlaces; ++piece) work(piece);
        if (r + 1 == kRowTiles) weights_[o].template ReloadChunk<kStep>(rows_[o], next_.step(), second_.step(), last_);
        KeepOrder();
      }
    }
  }

  DEVICE void EndLeaf() {
    tree_.EndLeaf(leaf_++, leaves_);
    if (leaf_ != leaves_) tree_.Clear();
  }
  const TileRow (&rows_)[kOut];
  const TallChunks<kFormat>& chunks_;
  Rows* x_;
  const uint32_t leaves_, last_;
  uint32_t leaf_ = 0;
  TallChunk present_, next_, second_, third_, fourth_ = {};  // chunks, one behind the other
  Weight weights_[kOut];
  typename Rows::Step first_;  // of the present chunk
  Tree tree_;
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_CHUNKS_H_
