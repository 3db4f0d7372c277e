// SPDX-License-Identifier: MIT
//
// A wave's sums over leaves that are all of blocks (ops/tall.h).
#ifndef MAINARCH_KERNELS_OPS_TALL_SUMS_H_
#define MAINARCH_KERNELS_OPS_TALL_SUMS_H_

#include "kernels/ops/tall_tiles.h"

namespace mainarch::kernels {

// `kLevels`: of the tree, at most: there are 2^kLevels leaves.
template <TileFormat kFormat, class Rows, uint32_t kOut, uint32_t kLevels>
class TallSums {
 public:
  // Of bf16 there is no room for more where there are many rows.
  static constexpr bool kFull = kFormat == TileFormat::kBf16 && Rows::kRowTiles > 4 && kOut > 2;
  using Weight = TallWeight<kFormat, kFull ? kChunkSteps : kBlockSteps>;
  static constexpr uint32_t kRowTiles = Rows::kRowTiles, kWords = Rows::kWords;
  using Tree = TallTree<Rows, kOut, kLevels>;

  // Of `leaves` leaves, 2^n, of `blocks` blocks each.
  DEVICE TallSums(const TileRow (&rows)[kOut], uint32_t leaves, uint32_t blocks, Rows* x)
      : rows_(rows), x_(x), steps_(leaves * blocks * kBlockSteps) {
    Bring<0>(0);
    if constexpr (Rows::kTurns == 2) Bring<1>(kChunkSteps);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      Fill<0>(weights_[o], rows_[o]);
    }
    Store<0>(0);
    if constexpr (Rows::kTurns == 1) Bring<1>(kChunkSteps);
    if constexpr (Rows::kTurns == 2) Bring<0>(Min(kBlockSteps, steps_ - kBlockSteps));
    Store<1>(Rows::kBufferBytes);
    Bring<1>(Min(kBlockSteps, steps_ - kBlockSteps) + (Rows::kTurns == 2 ? kChunkSteps : 0));
    BarrierLds();
    Read(0, 0, first_);
    uint32_t step = 0;
#pragma clang loop unroll(disable)
    for (uint32_t leaf = 0; leaf < leaves; ++leaf) {
      tree_.Clear();
#pragma clang loop unroll(disable)
      for (uint32_t b = 0; b < blocks; ++b) {
        Chunk<0>(step);
        Chunk<1>(step);
        step += kBlockSteps;
      }
      tree_.EndLeaf(leaf, leaves);
    }
  }
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return tree_.sums[0][output][tile]; }

 private:
  template <uint32_t kTile>
  DEVICE static void Fill(Weight& weight, const TileRow& row) {
    if constexpr (kTile < Weight::kTiles) {
      weight.template Load<kTile * Weight::kTileSteps>(row, kTile * Weight::kTileSteps);
      Fill<kTile + 1>(weight, row);
    }
  }
  template <uint32_t kTurn>
  DEVICE void Bring(uint32_t step) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x_->template Ask<kTurn>(i, step);
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

  // Chunk kChunk of the block that begins at `step`. An output tile's codes come a block ahead, x four chunks ahead to
  // registers and two to LDS, and from there a step ahead; beyond the end it is the end once more. All that stands
  // between matrix instructions, a piece behind each pair of them.
  template <uint32_t kChunk>
  DEVICE void Chunk(uint32_t step) {
    constexpr uint32_t kFirst = kChunk * kChunkSteps;
    const uint32_t next = Min(step + kBlockSteps, steps_ - kBlockSteps);
    const uint32_t own = x_->buffer, behind = x_->Behind(1), to = x_->Behind(2);
    const uint32_t ask = Rows::kTurns == 2  ? Min(step + 2 * kBlockSteps, steps_ - kBlockSteps) + kFirst
                         : kChunk == 0 ? next + kChunkSteps
                                       : Min(step + 2 * kBlockSteps, steps_ - kBlockSteps);
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
            weights_[o].template Add<kChunk>(w0, w1, first_[r][i], second[r][i], tree_.sums[i][o][r]);
          }
        }
        weights_[o].template ReloadBlock<kFirst + 1>(rows_[o], step, next);
        KeepOrder();
      }
      Read(behind, 0, first_);
      Store<kChunk>(to);
      Bring<kChunk>(ask);
    } else {
      constexpr uint32_t kReads = kRowTiles * kWords;
      const auto read = [&](uint32_t at, uint32_t of, uint32_t piece, typename Rows::Step& into) {
        into[piece / kWords][piece % kWords] = x_->Get(at, of, piece / kWords, piece % kWords);
      };
      Multiply<kFirst, kReads>(first_, step, next, [&](uint32_t piece) { read(own, 1, piece, second); });
      Multiply<kFirst + 1, kReads + Rows::kLoads>(second, step, next, [&](uint32_t piece) {
        if (piece < kReads) {
          read(behind, 0, piece, first_);
        } else {
          x_->template Put<kChunk>(piece - kReads, to);
          x_->template Ask<kChunk>(piece - kReads, ask);
        }
      });
    }
    x_->buffer = behind;
    BarrierLds();
  }
  // All output tiles by step kStep of the block, and between them so many pieces of other work.
  template <uint32_t kStep, uint32_t kPieces, class Work>
  DEVICE void Multiply(const typename Rows::Step& x, uint32_t step, uint32_t next, Work work) {
    constexpr uint32_t kPlaces = kOut * kRowTiles;
    uint32_t piece = 0;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const u32x4 w = weights_[o].template Decode<kStep>();
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) tree_.sums[i][o][r] = MatrixStep(w, x[r][i], tree_.sums[i][o][r]);
        KeepOrder();
        const uint32_t place = o * kRowTiles + r;
#pragma clang loop unroll(full)
        for (; piece < (place + 1) * kPieces / kPlaces; ++piece) work(piece);
        if (r + 1 == kRowTiles) weights_[o].template ReloadBlock<kStep>(rows_[o], step, next);
        KeepOrder();
      }
    }
  }

  const TileRow (&rows_)[kOut];
  Rows* x_;
  const uint32_t steps_;
  Weight weights_[kOut];
  typename Rows::Step first_;  // of the present chunk
  Tree tree_;
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_SUMS_H_
