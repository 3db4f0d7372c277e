// SPDX-License-Identifier: MIT
//
// Of a launch of experts (ops/experts.h): down, a leaf a wave, in which some experts' tiles are multiplied at once, and added in the
// order of experts.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_DOWN_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_DOWN_H_

#include "kernels/ops/experts_chosen.h"

namespace mainarch::kernels {

// Which experts and rows a leaf of down is summed over.
struct DownUnit {
  Lds<uint32_t> list;
  uint32_t count, output, first, mine;
  Arena arena;
};

// A tile of down, and its products.
template <TileFormat kDown>
struct DownTile : WholeTiles<kDown, 1> {
  template <Columns kColumns>
  DEVICE void Add(uint32_t step, const u32x4 (&x)[TileSteps(kDown)][Operand<kColumns>::kWords],
                  f32x4 (&sums)[Operand<kColumns>::kWords]) {
    this->MakeScales();
    WithCode<kDown>(this->row.Code(), [&](auto tag) {
      AddTile<kDown, 1, kColumns>(*this, 0, step, x, sums, tag);
    });
  }
};

// `kFormat`: of gate and up; `Sums`: what becomes of the sums.
template <TileFormat kFormat, TileFormat kDown, class Sums>
struct ExpertsDown {
  using Args = ExpertsArgs;
  using Choices = ExpertsChosen<kFormat>;
  using Tile = DownTile<kDown>;

  // ---- the same tile of several experts at once ----

  [[gnu::always_inline]] static constexpr uint32_t DownBatch(Columns columns) {
    const uint32_t most = columns == Columns::kMany ? 4 : 8;
    if (kDown == TileFormat::kNibble) return most / 4;
    return kDown == TileFormat::kBf16 ? most : most / 2;
  }

  template <Columns kColumns>
  DEVICE static DownUnit UnitOf(uint32_t rows, uint32_t first, uint32_t output, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(Choices::kListAt);
    return {list,  Uniform(+list[0]), output,
            first, Min(first + Operand<kColumns>::Row(), rows - 1), arena};
  }

  // An expert of the batch: its input, and its weight in this lane's row's sum, less than 0 where the row did not choose
  // it.
  template <Columns kColumns>
  struct Chosen {
    Operand<kColumns> x;
    float weight;
  };

  // Of experts place, place + 1, ...: the slots are read at once, then the weights.
  template <Columns kColumns, uint32_t kCount>
  DEVICE static void Choose(const Args& args, const DownUnit& unit, uint32_t place, Chosen<kColumns> (&to)[kCount]) {
    const uint32_t row = unit.mine - unit.first;
    uint32_t slots[kCount];
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kCount; ++e) slots[e] = Choices::SlotOf(row, Min(place + e, unit.count - 1), unit.arena);
    KeepOrder();
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kCount; ++e) {
      // A lane whose row did not choose this expert multiplies something finite: its slot 0.
      const uint32_t from = slots[e] != Choices::kNoSlot ? slots[e] : 0;
      to[e].x = Operand<kColumns>::Of(At(args.act), args.act_stride, unit.mine * args.top + from);
      const float weight = unit.arena.template Get<float>(Choices::kWeightsAt)[row * args.top + from];
      to[e].weight = place + e < unit.count && slots[e] != Choices::kNoSlot ? weight : -1.0f;
    }
  }
  template <Columns kColumns>
  DEVICE static void AddChosen(float weight, const f32x4 (&sums)[Operand<kColumns>::kWords],
                               f32x4 (&totals)[Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) {
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) {
        const float value = sums[i][e], old = totals[i][e], now = Fma(weight, value, old);
        totals[i][e] = weight < 0 ? old : now;
      }
    }
  }

  // A piece of some experts' k each.
  template <class Piece, Columns kColumns>
  struct DownPieces {
    static constexpr uint32_t kBatch = DownBatch(kColumns), kWords = Operand<kColumns>::kWords;
    Chosen<kColumns> chosen[kBatch];
    Piece pieces[kBatch];
    u32x4 in[kBatch][Piece::kSteps][kWords];

    DEVICE void Ask(const Args& args, const DownUnit& unit, uint32_t step, uint32_t place) {
      const uint32_t ids = unit.list[1 + Min(place + MadeBefore(LaneId()) % kBatch, unit.count - 1)];
      Choose<kColumns>(args, unit, place, chosen);
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) {
        const Tiles w = Choices::ExpertOf(args.down, args.down_stride, args.down_scale_stride, ReadLane(ids, e));
        pieces[e].Load(RowOf<kDown>(w, unit.output), step);
      }
      KeepOrder();
    }
    DEVICE void AskInputs(uint32_t step) {
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) LoadSteps<kColumns>(chosen[e].x, step, in[e]);
      KeepOrder();
    }
    DEVICE void AddTo(uint32_t step, f32x4 (&totals)[kWords]) {
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) {
        f32x4 sums[kWords];
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) sums[i] = f32x4{0, 0, 0, 0};
        pieces[e].template Add<kColumns>(step, in[e], sums);
        AddChosen<kColumns>(chosen[e].weight, sums, totals);
      }
    }
  };

  // The piece of each expert's k at `step`, some experts' at once.
  template <class Piece, Columns kColumns>
  DEVICE static void AddPieces(const Args& args, const DownUnit& unit, uint32_t step,
                               f32x4 (&totals)[Operand<kColumns>::kWords]) {
#pragma clang loop unroll(disable)
    for (uint32_t place = 0; place < unit.count; place += DownBatch(kColumns)) {
      DownPieces<Piece, kColumns> pieces;
      pieces.Ask(args, unit, step, place);
      pieces.AskInputs(step);
      pieces.AddTo(step, totals);
    }
  }
  // Whole tiles of a leaf: some experts' of one after the other's, the next ones asked for before the last ones are waited for. Of no
  // format that goes this way does the step matter to what is added.
  template <Columns kColumns>
  class DownAhead {
   public:
    DEVICE DownAhead(const Args& args, const DownUnit& unit, const Leaf<kDown>& leaf)
        : args_(args), unit_(unit), step_(leaf.step), left_(leaf.tiles * CeilDiv(unit.count, DownBatch(kColumns))) {}

    DEVICE void AddTo(f32x4 (&totals)[Operand<kColumns>::kWords]) {
      if (left_ == 0) return;
      Pieces one, other;
      Ask(one);
#pragma clang loop unroll(disable)
      while (left_ >= 2) {
        Ask(other);
        one.AddTo(step_, totals);
        Ask(one);
        other.AddTo(step_, totals);
      }
      if (left_ != 0) {
        Ask(other);
        one.AddTo(step_, totals);
        other.AddTo(step_, totals);
      } else {
        one.AddTo(step_, totals);
      }
    }

   private:
    using Pieces = DownPieces<Tile, kColumns>;
    DEVICE void Ask(Pieces& pieces) {
      pieces.Ask(args_, unit_, step_, place_);
      pieces.AskInputs(step_);
      --left_;
      place_ += DownBatch(kColumns);
      const bool next = place_ >= unit_.count;
      place_ = next ? 0 : place_;
      step_ += next ? TileSteps(kDown) : 0;
    }
    const Args& args_;
    const DownUnit& unit_;
    uint32_t step_, place_ = 0;
    uint32_t left_;  // batches that are to be asked for
  };
  static constexpr bool kDownAhead = kDown == TileFormat::kFp8 || kDown == TileFormat::kBf16;

  // One leaf of down's k: the weighted sum over the experts of the list.
  template <Columns kColumns>
  DEVICE static f32x4 DownLeaf(const Args& args, const DownUnit& unit, Leaf<kDown> leaf) {
    f32x4 totals[Operand<kColumns>::kWords];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) totals[i] = f32x4{0, 0, 0, 0};
    if constexpr (kDownAhead) {
      DownAhead<kColumns>(args, unit, leaf).AddTo(totals);
      leaf.step += leaf.tiles * TileSteps(kDown);
    } else {
#pragma clang loop unroll(disable)
      for (; leaf.tiles > 0; --leaf.tiles, leaf.step += TileSteps(kDown)) {
        AddPieces<Tile, kColumns>(args, unit, leaf.step, totals);
      }
    }
    ForEachTailTile<kDown>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
      AddPieces<decltype(piece), kColumns>(args, unit, step, totals);
    });
    return JoinColumns<kColumns>(totals);
  }

  template <Columns kColumns>
  DEVICE static void Run(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                          uint32_t workers, const Sums& sums, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(Choices::kListAt);
    const uint32_t count = Uniform(+list[0]);
    const uint32_t mine = Min(first + Operand<kColumns>::Row(), rows - 1);
    const uint32_t row = first + ThreadId() / kTileRows;
    for (uint32_t output = worker; output < args.down.outputs; output += workers) {
      const DownUnit unit = {list, count, output, first, mine, arena};
      LeafTree tree;
      ForEachLeaf<kDown>(args.down, 0, args.down.parts, [&](uint32_t i, Leaf<kDown> leaf) {
        tree.Push(i, DownLeaf<kColumns>(args, unit, leaf));
      });
      const float sum = AddWaves(tree.Sum(args.down.parts), arena.Get<float>());
      if (row < rows) sums.Put(args, row, output * kTileRows + ThreadId() % kTileRows, sum);
    }
    BarrierLds();
  }

  // ---- begun early ----

  // Where an output tile of down is two batches a wave at most: all that is known of the workgroup's first one before
  // it may be multiplied is asked for and worked out while the workgroup waits. What is left to do then is to load
  // inputs and to multiply.
  static constexpr bool kEarly = Sums::kFew && kDown == TileFormat::kBf16;
  // For each expert of the list and each of so few rows: bytes from `act` to its input, and its weight, less than 0 where the row
  // did not choose it. A thread each, in what the second tile's sums had.
  static constexpr uint32_t kChoicesAt = kTileLdsBytes;
  static constexpr uint32_t kChoiceRows = 4;
  static_assert(!kEarly || kChoiceRows * kChoiceRows * kRouterMaxTop <= kThreads);
  static_assert(!kEarly || kChoicesAt + kThreads * 8 <= Choices::kMaskAt);
  DEVICE static void FillChoices(const Args& args, uint32_t rows, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(Choices::kListAt);
    const uint32_t count = Uniform(+list[0]);
    const uint32_t place = ThreadId() / kChoiceRows, row = Min(ThreadId() % kChoiceRows, rows - 1);
    const uint32_t slot = Choices::SlotOf(row, Min(place, count - 1), arena), from = slot != Choices::kNoSlot ? slot : 0;
    const float weight = arena.Get<float>(Choices::kWeightsAt)[row * args.top + from];
    const uint32_t at = (row * args.top + from) * args.act_stride * 4;
    arena.Get<u32x2>(kChoicesAt)[ThreadId()] =
        u32x2{at, BitCast<uint32_t>(place < count && slot != Choices::kNoSlot ? weight : -1.0f)};
  }

  template <Columns kColumns>
  struct EarlyTiles {
    static constexpr uint32_t kBatch = DownBatch(kColumns), kBatches = 2, kWords = Operand<kColumns>::kWords;
    Tile pieces[kEarly ? kBatches : 0][kBatch];
    u32x4 in[kEarly ? kBatches : 0][kBatch][Tile::kSteps][kWords];
    bool real = false;     // this is how the first tile is made
    uint32_t batches = 0;  // that this wave has
    uint32_t each;         // batches of a tile
    uint32_t step, tiles;  // of the leaf
    uint64_t act;

    // Of a leaf of one tile and one batch the second is the first once more.
    DEVICE uint32_t StepOf(uint32_t batch) const {
      return step + Min(batch / each, tiles - 1) * TileSteps(kDown);
    }
    DEVICE Lds<const u32x2> ChoicesOf(uint32_t batch, Arena arena) const {
      const uint32_t row = Operand<kColumns>::Row() % kChoiceRows;
      return arena.template Get<u32x2>(kChoicesAt) + (batch % each * kBatch * kChoiceRows + row);
    }
    DEVICE void Ask(const Args& args, const DownUnit& unit) {
      each = CeilDiv(unit.count, kBatch);
      real = args.down.parts == 1 && CeilDiv(args.down.steps, kPartLeaves * TileSteps(kDown)) * each <= kBatches;
      const Leaf<kDown> leaf(0, args.down.steps, WaveId());
      if (!real || leaf.tiles == 0) return;
      batches = leaf.tiles * each;
      step = leaf.step;
      tiles = leaf.tiles;
      act = args.act.address;
#pragma clang loop unroll(full)
      for (uint32_t b = 0; b < kBatches; ++b) {
        const uint32_t place = b % each * kBatch + MadeBefore(LaneId()) % kBatch;
        const uint32_t ids = unit.list[1 + Min(place, unit.count - 1)];
#pragma clang loop unroll(full)
        for (uint32_t e = 0; e < kBatch; ++e) {
          pieces[b][e].Load(RowOf<kDown>(Choices::ExpertOf(args.down, args.down_stride, args.down_scale_stride,
                                                  ReadLane(ids, e)),
                                         unit.output),
                            StepOf(b));
          KeepOrder();  // or addresses of all would be made first, in registers that there are not
        }
      }
    }
    // Once act is there.
    DEVICE void AskInputs(Arena arena) {
      const uint32_t own = Operand<kColumns>::LaneBytes();
#pragma clang loop unroll(full)
      for (uint32_t b = 0; b < kBatches; ++b) {
        const Lds<const u32x2> choices = ChoicesOf(b, arena);
        const Global<const uint8_t> from = reinterpret_cast<Global<const uint8_t>>(act) + StepOf(b) * kSplitStepBytes;
#pragma clang loop unroll(full)
        for (uint32_t e = 0; e < kBatch; ++e) {
          const uint32_t at = choices[e * kChoiceRows][0] + own;
          LoadSteps<kColumns>(Operand<kColumns>{from + at}, 0, in[b][e]);
        }
      }
      KeepOrder();
    }
    DEVICE f32x4 Sum(Arena arena) {
      f32x4 totals[kWords];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kWords; ++i) totals[i] = f32x4{0, 0, 0, 0};
#pragma clang loop unroll(full)
      for (uint32_t b = 0; b < kBatches; ++b) {
        if (b < batches) AddBatch(b, arena, totals);
      }
      return JoinColumns<kColumns>(totals);
    }
    DEVICE void AddBatch(uint32_t b, Arena arena, f32x4 (&totals)[kWords]) {
      const Lds<const u32x2> choices = ChoicesOf(b, arena);
      f32x4 sums[kBatch][kWords];
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) sums[e][i] = f32x4{0, 0, 0, 0};
        pieces[b][e].template Add<kColumns>(StepOf(b), in[b][e], sums[e]);
      }
      KeepOrder();  // all are multiplied before one is added
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) {
        const uint32_t weight = choices[e * kChoiceRows][1];
        AddChosen<kColumns>(BitCast<float>(weight), sums[e], totals);
      }
    }
  };
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_DOWN_H_
