// SPDX-License-Identifier: MIT
//
// The routed experts of a layer: both products in one launch, in which workgroups may make the router's choice, too.
//
// All rows of a block of 16 are columns of every matrix instruction, so an expert's weights are
// read once for all the rows that chose it, with no sorting and no permutation: rows that did not
// choose it are computed too and dropped. Experts are added in ascending id, whoever chose them, so
// a row's bits do not depend on the others; and tile by tile in each leaf of k apart, before leaves
// are added in the tree (ops/tiles.h), so that they do not depend on the number of ranks.
//
// A shared expert is one more: the last id, in the last slot of every row, its weight the sigmoid
// of one more row of the router.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/arrivals.h"
#include "kernels/ops/experts_together.h"
#include "kernels/ops/gating.h"
#include "kernels/ops/told.h"
#include "kernels/tall_args.h"

namespace mainarch::kernels {

// Sums of experts lie in memory, for the launch behind.
struct StoredSums {
  static constexpr bool kFew = false;  // steps have no more than kFewRows rows
  DEVICE explicit StoredSums(const ExpertsArgs&) {}
  DEVICE static void Put(const ExpertsArgs& args, uint32_t row, uint32_t column, float value) {
    At(args.out)[uint64_t{row} * args.out_stride + column] = value;
  }
  DEVICE static void Add(uint32_t, uint32_t, Arena) {}
};

// `kAny`: the kernel's arguments begin with ExpertsAnyArgs, which it reads what follows gate and up from.
// `kFormat`: of gate and up; `kDown`: of down. `Sums`: what becomes of the sums.
template <TileFormat kFormat, Taken kTaken = Taken::kBoth, bool kAny = false, TileFormat kDown = kFormat,
          class Sums = StoredSums>
struct Experts {
  using Args = ExpertsArgs;
  using Choices = ExpertsChosen<kFormat>;
  using Down = ExpertsDown<kFormat, kDown, Sums>;
  using Together = ExpertsTogether<kFormat, kDown, Sums>;
  static constexpr uint32_t kLdsBytes = Choices::kLdsBytes;
  static constexpr uint32_t kLeastWaves = 2;  // of a SIMD: that LDS has room for

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    if constexpr (kTaken != Taken::kBoth) {
      Both<ColumnsOf(kTaken, Sums::kFew)>(args, worker, workers, arena);
    } else if (Sums::kFew || args.most_rows <= kFewRows) {
      Both<Columns::kFew>(args, worker, workers, arena);
    } else {
      Both<Columns::kMany>(args, worker, workers, arena);
    }
  }

  // Leaves of down are seldom of blocks of four steps: where fp8 is multiplied by such, down takes rows as bf16.
  static constexpr bool kDownRounded = kTaken == Taken::kScaled && kDown == TileFormat::kFp8;
  template <Columns kColumns>
  DEVICE static void Both(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows();
    const uint32_t most = Sums::kFew ? kTileRows : rows;  // of few there is one block
    Choices::RouteHere(rows, arena);
    const Args up = ReadArgumentsAgain<Args>();
    for (uint32_t first = 0; first < most; first += kTileRows) {
      Choices::Distinct(up, rows, first, arena);
      GateUp<kColumns>(up, rows, first, worker, workers, arena);
    }
    constexpr Columns kDownColumns = kDownRounded ? Columns::kRounded : kColumns;
    const Args early = ReadArgumentsAgain<Args>();
    Arrive(At(early.arrivals), TagOf(early), worker, workers);
    // Weights do not depend on what is waited for: those of step 0, if a whole tile begins there.
    const Sums sums(early);
    typename Together::template Asked<DownTile<kDown>, kDownColumns> asked[2];
    const bool has_asked = Together::Takes(early.down) && rows <= kTileRows &&
                           worker < early.down.outputs &&
                           PartEnd(early.down, 0) >= TileSteps(kDown);
    if (has_asked) Together::AskFirst(early, Down::template UnitOf<kDownColumns>(rows, 0, worker, arena), 0, asked);
    typename Down::template EarlyTiles<kDownColumns> first_tiles;
    if constexpr (Down::kEarly) {
      if (!Together::Takes(early.down) && worker < early.down.outputs && rows <= Down::kChoiceRows) {
        Down::FillChoices(ReadArgumentsAgain<Args>(), rows, arena);
        first_tiles.Ask(ReadArgumentsAgain<Args>(), Down::template UnitOf<kDownColumns>(rows, 0, worker, arena));
      }
    }
    AwaitAllOf(worker, workers);
    uint32_t left = worker;  // the first output tile that is not made
    if constexpr (Down::kEarly) {
      if (first_tiles.batches != 0) first_tiles.AskInputs(arena);
      if (first_tiles.real) {
        const float sum = AddWaves(first_tiles.Sum(arena), arena.Get<float>());
        const uint32_t row = ThreadId() / kTileRows;
        if (row < rows) sums.Put(early, row, worker * kTileRows + ThreadId() % kTileRows, sum);
        left += workers;
      }
    }
    if constexpr (!Sums::kFew && !HasCodes(kDown)) {  // of codes, which have several ways, scalar registers are too few
      DownOfBlocks<kDownColumns>(rows, rows <= kTileRows, worker, workers, has_asked, asked, sums, arena);
    } else {
      const Args down = Sums::kFew ? ReadArgumentsAgain<Args>() : early;
      for (uint32_t first = 0; first < most; first += kTileRows) {
        if (!Sums::kFew && rows > kTileRows) Choices::Distinct(down, rows, first, arena);  // else it is there already
        if (Together::Takes(down.down)) {
          Together::template Run<kDownColumns>(down, rows, first, worker, workers, has_asked, asked, sums, arena);
        } else {
          Down::template Run<kDownColumns>(down, rows, first, left, workers, sums, arena);
        }
      }
    }
    sums.Add(worker, workers, arena);
  }
  DEVICE static uint32_t TagOf(const Args& args) { return LaunchTag(StepView(args.step).index(), args.turn, args.turns); }
  DEVICE static void AwaitAllOf(uint32_t worker, uint32_t workers) {
    const Args args = ReadArgumentsAgain<Args>();
    AwaitAll(At(args.arrivals), TagOf(args), worker, workers);
  }
  // Units are an output tile of an expert each. A workgroup has two at once where there are two, so that it waits once for both. Of
  // few rows there are often fewer units than workgroups, and of fp8 two at once take too many registers: one at a time, then, but
  // where a leaf is of two batches or more each batch, the next unit's first too, is asked for before the last one is waited for.
  static constexpr bool kAhead = IsFp8(kFormat) || (Sums::kFew && kFormat == TileFormat::kBf16);
  static constexpr uint32_t kMostUnits = kAhead || HasCodes(kFormat) ? 1 : 2;
  template <Columns kColumns>
  DEVICE static void GateUp(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                            uint32_t workers, Arena arena) {
    const uint32_t total = Uniform(+arena.Get<uint32_t>(Choices::kListAt)[0]) * args.gate_up.outputs;
    const auto x = Operand<kColumns>::Of(At(args.x), args.x_stride,
                                         Min(first + Operand<kColumns>::Row(), rows - 1));
    const uint32_t row = first + ThreadId() / kTileRows;
    const RowFactor factor(args.norm, row, row < rows);
    if constexpr (kApart) {
      if (rows <= kApartRows && total <= kApartUnits && 2 * total <= workers) {
        if (worker < 2 * total) GateUpApart<kColumns>(args, rows, worker < total ? worker : worker - total, worker >= total, x, factor, arena);
        BarrierLds();
        return;
      }
    }
    uint32_t t = worker;
    if constexpr (kAhead) {
      using Ahead = UnitsAhead<kFormat, kColumns, 2>;
      if (args.gate_up.steps >= kPartLeaves * 2 * Ahead::kSteps && t < total) {
        GateUpAhead<kColumns>(args, rows, first, t, total, workers, x, factor, arena);
        t = total;
      }
    }
    for (; t < total; t += kMostUnits * workers) {
      if (kMostUnits > 1 && t + workers < total) {
        GateUpUnits<kColumns, kMostUnits>(args, rows, first, t, workers, x, factor, arena);
      } else {
        GateUpUnits<kColumns, 1>(args, rows, first, t, workers, x, factor, arena);
      }
    }
    BarrierLds();
  }

  struct Unit {
    uint32_t place, id, output;
    TileRow tiles[2];  // gate, up
    Unit() = default;
    DEVICE Unit(uint32_t t, Arena arena) {
      const Args args = ReadArgumentsAgain<Args>();
      place = t / args.gate_up.outputs;
      output = t - place * args.gate_up.outputs;
      id = Uniform(+arena.Get<uint32_t>(Choices::kListAt)[1 + place]);
      const Tiles w = Choices::ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id);
      tiles[0] = RowOf<kFormat>(w, 2 * output);
      tiles[1] = RowOf<kFormat>(w, 2 * output + 1);
    }
  };
  // Made as late as may be: it takes scalar registers.
  struct NextUnit {
    uint32_t t;
    Arena arena;
    Unit* to;
    DEVICE const TileRow (&operator()() const)[2] {
      *to = Unit(t, arena);
      return to->tiles;
    }
  };
  // Units t, t + workers, ... below total.
  template <Columns kColumns>
  DEVICE static void GateUpAhead(const Args& args, uint32_t rows, uint32_t first, uint32_t t, uint32_t total, uint32_t workers,
                                 const Operand<kColumns>& x, const RowFactor& factor, Arena arena) {
    const Leaf<kFormat> leaf(0, args.gate_up.steps, WaveId());
    Unit unit(t, arena);
    UnitsAhead<kFormat, kColumns, 2> ahead(unit.tiles, leaf, x, Operand<kColumns>::Row() < rows - first);
#pragma clang loop unroll(disable)
    for (; t < total; t += workers) {
      Unit next;
      Gating gating;
      if constexpr (kAny) {
        gating = Gating(ReadArgumentsAgain<ExpertsAnyArgs>().gating, unit.id,
                        unit.output * kTileRows + ThreadId() % kTileRows);
      }
      f32x4 sums[2];
      ahead.Sum(unit.tiles, NextUnit{t + workers < total ? t + workers : t, arena, &next}, leaf, x, sums);
      float all[2];
      AddWaves(sums, arena.Get<float>(), all);
      const float by = factor.Value(ReadArgumentsAgain<Args>().norm);
      StoreActivated(ReadArgumentsAgain<Args>(), rows, first, unit.place, unit.output, Activated(gating, all[0] * by, all[1] * by), arena);
      unit = next;
    }
  }
  // Of one row there are often no more than half as many units as workgroups. Then a workgroup has a unit's gate and another one up,
  // which it tells: twice as many compute units read. Of MXFP4 and pairs, of which a wave then asks for less at once, that is slower.
  static constexpr bool kApart = Sums::kFew && kAhead;
  template <Columns kColumns>
  DEVICE static void GateUpApart(const Args& args, uint32_t rows, uint32_t t, bool is_up, const Operand<kColumns>& x,
                                 const RowFactor& factor, Arena arena) {
    const uint32_t place = t / args.gate_up.outputs, output = t - place * args.gate_up.outputs;
    const uint32_t id = Uniform(+arena.Get<uint32_t>(Choices::kListAt)[1 + place]);
    const Tiles w = Choices::ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id);
    const TileRow tiles[1] = {RowOf<kFormat>(w, 2 * output + (is_up ? 1 : 0))};
    f32x4 sums[1];
    OneLeaf<kColumns>(args, tiles, Operand<kColumns>::Row() < rows, x, sums);
    const float value = AddWaves(sums[0], arena.Get<float>()) * factor.Value(ReadArgumentsAgain<Args>().norm);
    if (ThreadId() >= rows * kTileRows) return;
    const Args again = ReadArgumentsAgain<Args>();
    const uint32_t tag = TagOf(again);
    const Global<uint64_t> word = reinterpret_cast<Global<uint64_t>>(At(again.arrivals) + kApartAt) + t * (kApartRows * kTileRows) + ThreadId();
    if (is_up) {
      StoreFlag<Scope::kDevice>(word, TaggedWord(tag, value));
      return;
    }
    Gating gating;
    if constexpr (kAny) {
      gating = Gating(ReadArgumentsAgain<ExpertsAnyArgs>().gating, id, output * kTileRows + ThreadId() % kTileRows);
    }
    uint64_t up = LoadFlag<Scope::kDevice>(word);
    while (Ballot(OtherTag(up, tag) != 0) != 0) {
      Pause();
      up = LoadFlag<Scope::kDevice>(word);
    }
    StoreActivated(again, rows, 0, place, output, Activated(gating, value, ValueOf(up)), arena);
  }
  // There is no next unit: its first tiles are this one's again, which the caches have.
  struct Same {
    const TileRow (&rows)[1];
    DEVICE const TileRow (&operator()() const)[1] { return rows; }
  };
  // This wave's leaf of a tile.
  template <Columns kColumns>
  DEVICE static void OneLeaf(const Args& args, const TileRow (&tiles)[1], bool real, const Operand<kColumns>& x, f32x4 (&sums)[1]) {
    const Leaf<kFormat> leaf(0, args.gate_up.steps, WaveId());
    using Ahead = UnitsAhead<kFormat, kColumns, 1>;
    if (args.gate_up.steps >= kPartLeaves * 2 * Ahead::kSteps) {
      Ahead(tiles, leaf, x, real).Sum(tiles, Same{tiles}, leaf, x, sums);
      return;
    }
    sums[0] = LeafSums<kFormat, kColumns, 1>(tiles, leaf, x).of[0];
  }
  DEVICE static void StoreActivated(const Args& args, uint32_t rows, uint32_t first, uint32_t place, uint32_t output, float value,
                                    Arena arena) {
    const uint32_t row = first + ThreadId() / kTileRows;
    const uint32_t slot = row < rows ? Choices::SlotOf(row - first, place, arena) : Choices::kNoSlot;
    if (slot != Choices::kNoSlot) {
      StoreSplit(At(args.act) + (uint64_t{row} * args.top + slot) * args.act_stride,
                 output * kTileRows + ThreadId() % kTileRows, value);
    }
  }

  // Units unit, unit + workers, ...
  template <Columns kColumns, uint32_t kUnits>
  DEVICE static void GateUpUnits(const Args& args, uint32_t rows, uint32_t first, uint32_t unit,
                                 uint32_t workers, const Operand<kColumns>& x,
                                 const RowFactor& factor, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(Choices::kListAt);
    uint32_t places[kUnits], outputs[kUnits];
    TileRow tiles[2 * kUnits];  // gate, up of each
    Gating gating[kUnits];
#pragma clang loop unroll(full)
    for (uint32_t u = 0; u < kUnits; ++u) {
      const uint32_t t = unit + u * workers;
      places[u] = t / args.gate_up.outputs;
      outputs[u] = t - places[u] * args.gate_up.outputs;
      const uint32_t id = Uniform(+list[1 + places[u]]);
      const Tiles w =
          Choices::ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id);
      tiles[2 * u] = RowOf<kFormat>(w, 2 * outputs[u]);
      tiles[2 * u + 1] = RowOf<kFormat>(w, 2 * outputs[u] + 1);
      if constexpr (kAny) {
        gating[u] = Gating(ReadArgumentsAgain<ExpertsAnyArgs>().gating, id,
                           outputs[u] * kTileRows + ThreadId() % kTileRows);
      }
    }
    const LeafSums<kFormat, kColumns, 2 * kUnits> sums(tiles, Leaf<kFormat>(0, args.gate_up.steps, WaveId()), x);
    const float by = factor.Value(args.norm);
    float all[2 * kUnits];
    AddWaves(sums.of, arena.Get<float>(), all);
#pragma clang loop unroll(full)
    for (uint32_t u = 0; u < kUnits; ++u) {
      StoreActivated(args, rows, first, places[u], outputs[u], Activated(gating[u], all[2 * u] * by, all[2 * u + 1] * by), arena);
    }
  }

  DEVICE static float Activated(const Gating& gating, float gate, float up) {
    if constexpr (kAny) {
      return gating.Value(ReadArgumentsAgain<ExpertsAnyArgs>().gating, gate, up);
    }
    return Silu(gate) * up;
  }

  // ---- down, of any number of rows ----

  // Of several blocks of rows those of an output tile come one behind the other, on one die, whose cache keeps what experts
  // have of that tile. `listed`: there is one block, and its list is there. `early`, `asked`: as DownTogether has them.
  template <Columns kColumns>
  DEVICE static void DownOfBlocks(uint32_t rows, bool listed, uint32_t worker, uint32_t workers, bool early,
                                  typename Together::template Asked<DownTile<kDown>, kColumns> (&asked)[2], const Sums& sums, Arena arena) {
    constexpr uint32_t kDies = TallGrid::kDies;
#pragma clang loop unroll(disable)
    for (uint32_t t = worker;; t += workers) {
      const Args args = ReadArgumentsAgain<Args>();
      const uint32_t each = CeilDiv(rows, kTileRows) * kDies, turn = Uniform(t / each), place = t - turn * each;
      const uint32_t output = turn * kDies + place % kDies, first = place / kDies * kTileRows;
      if (turn * kDies >= args.down.outputs) return;
      if (output >= args.down.outputs) continue;
      if (!listed) Choices::Distinct(args, rows, first, arena);
      if (Together::Takes(args.down)) {
        Together::template Run<kColumns>(args, rows, first, output, args.down.outputs, early, asked, sums, arena);
      } else {
        Down::template Run<kColumns>(args, rows, first, output, args.down.outputs, sums, arena);
      }
      early = false;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_H_
