// SPDX-License-Identifier: MIT
//
// Of products of many rows (ops/tall.h): a wave's sums, and how it multiplies a chunk while the next ones come.
#ifndef MAINARCH_KERNELS_OPS_TALL_CORE_H_
#define MAINARCH_KERNELS_OPS_TALL_CORE_H_

#include "kernels/ops/tall_tiles.h"

namespace mainarch::kernels {

// The sums of a wave: of kOut output tiles by so many tiles of rows. kWords sets of them are being made; what waits for its
// neighbour in the tree of 2^kLevels leaves at most has a set a level.
template <class Rows, uint32_t kOut, uint32_t kLevels>
class TallTree {
 public:
  static constexpr uint32_t kRowTiles = Rows::kRowTiles, kWords = Rows::kWords;
  using Sums = f32x4[kOut][kRowTiles];
  Sums sums[kWords];

  DEVICE void Clear() {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kWords; ++i) {
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; ++o) {
#pragma clang loop unroll(full)
        for (uint32_t r = 0; r < kRowTiles; ++r) sums[i][o][r] = f32x4{0, 0, 0, 0};
      }
    }
  }
  // A leaf is added up, `leaf` of `leaves`, 2^n.
  DEVICE void EndLeaf(uint32_t leaf, uint32_t leaves) {
    if constexpr (kWords == 2) Add(sums[1]);
    Carry<0>(leaf, leaves);
  }

 private:
  DEVICE void Add(const Sums& more) {
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) sums[0][o][r] = sums[0][o][r] + more[o][r];
    }
  }
  // sums[0] is the sum of 2^kLevel leaves, the last of which is `index`: the left one of two, which waits, or the right
  // one. It stays there when it is the sum of all.
  template <uint32_t kLevel>
  DEVICE void Carry(uint32_t index, uint32_t leaves) {
    if constexpr (kLevel < kLevels) {
      if (leaves == 1u << kLevel) return;
      if (!(index >> kLevel & 1)) {
#pragma clang loop unroll(full)
        for (uint32_t o = 0; o < kOut; ++o) {
#pragma clang loop unroll(full)
          for (uint32_t r = 0; r < kRowTiles; ++r) waiting_[kLevel][o][r] = sums[0][o][r];
        }
        return;
      }
      Add(waiting_[kLevel]);
      Carry<kLevel + 1>(index, leaves);
    }
  }

  Sums waiting_[kLevels] = {};
};

// The tree of a wave that has registers for the sums of a part's four leaves, each a set in turns: of its levels those above parts.
inline constexpr uint32_t kTurnLevels = 2;
template <class Rows, uint32_t kOut, uint32_t kLevels>
using TallTurnsTree = TallTree<Rows, kOut, (kLevels > kTurnLevels ? kLevels - kTurnLevels : 1)>;

// How such a wave adds up. core.Multiply<kFirst>(sums): once, for the first time in a leaf or not.
template <class Core>
struct TallInTurns {
  using Sums = typename Core::Sums;

  // `parts` of four leaves, of `times` each.
  DEVICE static void Sum(Core& core, uint32_t parts, uint32_t times) {
#pragma clang loop unroll(disable)
    for (uint32_t part = 0; part < parts; ++part) {
      AddPart(core, times);
      core.tree.EndLeaf(part, parts);
    }
  }

 private:
  // (leaf 0 + leaf 1) + (leaf 2 + leaf 3).
  DEVICE static void AddPart(Core& core, uint32_t times) {
    Sums second, third;
    AddLeaf(core, core.tree.sums[0], times);
    AddLeaf(core, second, times);
    Add(core.tree.sums[0], second);
    AddLeaf(core, second, times);
    AddLeaf(core, third, times);
    Add(second, third);
    Add(core.tree.sums[0], second);
  }
  // Here, not where the sum is wanted: until then both would take registers.
  DEVICE static void Add(Sums& to, const Sums& more) {
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < Core::kOutputs; ++o) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < Core::kRowTiles; ++r) {
        to[o][r] = MadeBefore(to[o][r] + more[o][r]);
        KeepOrder();
      }
    }
  }
  DEVICE static void AddLeaf(Core& core, Sums& to, uint32_t times) {
    core.template Multiply<true>(to);
#pragma clang loop unroll(disable)
    for (uint32_t i = 1; i < times; ++i) core.template Multiply<false>(to);
  }
};

// A wave's sums as they are made, whatever the order of chunks (ops/tall_sums.h, ops/tall_chunks.h). `kLevels`: of the tree,
// at most: there are 2^kLevels leaves. `kHeld`: steps of the weight in registers.
template <TileFormat kFormat, class RowsInLds, uint32_t kOut, uint32_t kLevels, uint32_t kHeldSteps>
struct TallCore {
  static constexpr TileFormat kTileFormat = kFormat;
  static constexpr uint32_t kHeld = kHeldSteps, kOutputs = kOut;
  using Rows = RowsInLds;
  using Weight = TallWeight<kFormat, kHeld>;
  static constexpr uint32_t kRowTiles = Rows::kRowTiles, kWords = Rows::kWords;

  const TileRow (&rows)[kOut];
  Rows* x;
  Weight weights[kOut];
  typename Rows::Step first;  // of the present chunk
  TallTree<Rows, kOut, kLevels> tree;

  DEVICE TallCore(const TileRow (&tiles)[kOut], Rows* in) : rows(tiles), x(in) {}
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return tree.sums[0][output][tile]; }
  DEVICE void AskFirst(uint32_t) {}
  DEVICE void Begin() {}

  // All that this thread brings of a chunk, from LDS' point of view: on its way, and there.
  template <uint32_t kTurn, class Plan>
  DEVICE void Bring(const Plan& plan) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) plan.template Ask<kTurn>(x, i);
  }
  template <uint32_t kTurn>
  DEVICE void Store(uint32_t at, uint32_t mask = ~0u) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x->template Put<kTurn>(i, at, mask);
  }
  DEVICE void Read(uint32_t at, uint32_t step, typename Rows::Step& to) {
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kWords; ++i) to[r][i] = x->Get(at, step, r, i);
    }
  }

  // A chunk, the kTurn-th of two. x comes from LDS a step ahead, and goes there two chunks ahead; `plan` says what is
  // asked for meanwhile. All that stands between matrix instructions, a piece behind each few of them.
  //   Plan::Ask<kTurn>(x, i)            word i of the chunk of x whose turn comes
  //   Plan::Reload<kStep>(weight, row)  what takes the place of step kStep of those held
  //   Plan::half()                      there is no second step; only if kHalves
  //   Plan::half_tile()                 the present tile of MXFP4 has two steps alone
  //   Plan::Mask<kTurn>()               of the chunk of x that goes to LDS, as Put takes it
  template <uint32_t kTurn, class Plan>
  DEVICE void Chunk(const Plan& plan) {
    constexpr uint32_t kFirst = kTurn * kChunkSteps, kReads = kRowTiles * kWords;
    const uint32_t own = x->buffer, behind = x->Behind(1), to = x->Behind(2);
    typename Rows::Step second;
    if constexpr (Weight::kFp8) {
      Read(own, 1, second);
      KeepOrder();
      MultiplyBoth<kTurn>(second, plan);
      Read(behind, 0, first);
      Store<kTurn>(to, plan.template Mask<kTurn>());
      Bring<kTurn>(plan);
    } else {
      const auto read = [&](uint32_t at, uint32_t of, uint32_t piece, typename Rows::Step& into) {
        into[piece / kWords][piece % kWords] = x->Get(at, of, piece / kWords, piece % kWords);
      };
      Multiply<kFirst, kReads>(first, plan, [&](uint32_t piece) { read(own, 1, piece, second); });
      Multiply<kFirst + 1, kReads + Rows::kLoads>(second, plan, [&](uint32_t piece) {
        if (piece < kReads) {
          read(behind, 0, piece, first);
        } else {
          x->template Put<kTurn>(piece - kReads, to, plan.template Mask<kTurn>());
          plan.template Ask<kTurn>(x, piece - kReads);
        }
      });
    }
    x->buffer = behind;
    BarrierLds();
  }

  // All output tiles by step kStep of those held, and between them so many pieces of other work.
  template <uint32_t kStep, uint32_t kPieces, class Plan, class Work>
  DEVICE void Multiply(const typename Rows::Step& in, const Plan& plan, Work work) {
    constexpr uint32_t kPlaces = kOut * kRowTiles;
    uint32_t piece = 0;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      u32x4 w = weights[o].template Decode<kStep>(plan.half_tile());
      if constexpr (Plan::kHalves && kStep % kChunkSteps != 0) w = w & (plan.half() ? 0u : ~0u);
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) tree.sums[i][o][r] = MatrixStep(w, in[r][i], tree.sums[i][o][r]);
        KeepOrder();
        const uint32_t place = o * kRowTiles + r;
#pragma clang loop unroll(full)
        for (; piece < (place + 1) * kPieces / kPlaces; ++piece) work(piece);
        if (r + 1 == kRowTiles) plan.template Reload<kStep>(weights[o], rows[o]);
        KeepOrder();
      }
    }
  }
  // fp8: by both steps of the chunk, whose products are added before they are added to the sum.
  template <uint32_t kTurn, class Plan>
  DEVICE void MultiplyBoth(const typename Rows::Step& second, const Plan& plan) {
    constexpr uint32_t kFirst = kTurn * kChunkSteps;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const u32x4 w0 = weights[o].template Decode<kFirst>(false), w1 = weights[o].template Decode<kFirst + 1>(false);
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) {
          weights[o].template Add<kTurn>(w0, w1, first[r][i], second[r][i], tree.sums[i][o][r]);
        }
      }
      plan.template Reload<kFirst + 1>(weights[o], rows[o]);
      KeepOrder();
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_CORE_H_
