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
#include "kernels/experts_args.h"
#include "kernels/ops/arrivals.h"
#include "kernels/ops/gating.h"
#include "kernels/ops/route.h"
#include "kernels/ops/tiles.h"
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
  static constexpr uint32_t kLeastWaves = 2;  // of a SIMD; see kLdsBytes
  // Tile sums of two units, or products of experts; then of a block of rows the experts that any of them chose, ascending; for each of
  // these and each row the slot in which the row chose it; and the weights of the slots.
  // Of kTileLdsBytes. Two workgroups have room on a compute unit, so that contexts of one GPU do not
  // wait for each other.
  static constexpr uint32_t kScratchTiles = IsFp8(kFormat) || HasCodes(kFormat) ? 2 : 4;
  static constexpr uint32_t kIds = kRouterMaxExperts + 32;  // with a shared one
  static constexpr uint32_t kMaskWords = kIds / 32;
  static constexpr uint32_t kMostChoices = kTileRows * kRouterMaxTop;
  static constexpr uint32_t kMaskAt = kScratchTiles * kTileLdsBytes;
  static constexpr uint32_t kListAt = kMaskAt + kMaskWords * 4;
  static constexpr uint32_t kSlotsAt = kListAt + (kMostChoices + 1) * 4;  // bytes
  static constexpr uint32_t kWeightsAt = kSlotsAt + kMostChoices * kTileRows;
  static constexpr uint32_t kTableAt = kWeightsAt + kMostChoices * 4;
  static constexpr uint32_t kLdsBytes = kTableAt + kScratchTiles * kWaves * kTileRows * 4;
  static_assert(kMostChoices <= kThreads);
  static constexpr uint32_t kNoSlot = ~0u;

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
    ClearOthers(worker);
    RouteHere(rows, arena);
    const Args up = ReadArgumentsAgain<Args>();
    for (uint32_t first = 0; first < most; first += kTileRows) {
      Distinct(up, rows, first, arena);
      GateUp<kColumns>(up, rows, first, worker, workers, arena);
    }
    constexpr Columns kDownColumns = kDownRounded ? Columns::kRounded : kColumns;
    const Args early = ReadArgumentsAgain<Args>();
    Arrive(Arrivals(), worker, workers);
    // Weights do not depend on what is waited for: those of step 0, if a whole tile begins there.
    const Global<const uint32_t> arrivals = Arrivals();
    const Sums sums(early);
    Asked<DownTile, kDownColumns> asked[2];
    const bool has_asked = Together(early.down) && rows <= kTileRows &&
                           worker < early.down.outputs &&
                           PartEnd(early.down, 0) >= TileSteps(kDown);
    if (has_asked) AskFirst(early, UnitOf<kDownColumns>(rows, 0, worker, arena), 0, asked);
    EarlyTiles<kDownColumns> first_tiles;
    if constexpr (kEarly) {
      if (!Together(early.down) && worker < early.down.outputs && rows <= kChoiceRows) {
        FillChoices(ReadArgumentsAgain<Args>(), rows, arena);
        first_tiles.Ask(ReadArgumentsAgain<Args>(), UnitOf<kDownColumns>(rows, 0, worker, arena));
      }
    }
    AwaitAll(arrivals, workers);
    uint32_t left = worker;  // the first output tile that is not made
    if constexpr (kEarly) {
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
        if (!Sums::kFew && rows > kTileRows) Distinct(down, rows, first, arena);  // else it is there already
        if (Together(down.down)) {
          DownTogether<kDownColumns>(down, rows, first, worker, workers, has_asked, asked, sums, arena);
        } else {
          Down<kDownColumns>(down, rows, first, left, workers, sums, arena);
        }
      }
    }
    sums.Add(worker, workers, arena);
  }
  // The lines that this launch counts in, or those of the next one.
  DEVICE static Global<uint32_t> Arrivals(bool others = false) {
    const Args args = ReadArgumentsAgain<Args>();
    const uint32_t set = ArrivalSet(StepView(args.step).index(), args.turn, args.turns);
    return At(args.arrivals) + (others ? 1 - set : set) * kArrivalSetWords;
  }
  // Nobody is at the other lines any more: they are zeros for the next launch.
  DEVICE static void ClearOthers(uint32_t worker) {
    if (worker != 0 || ThreadId() >= kArrivalLines) return;
    Arrivals(/*others=*/true)[ThreadId() * kArrivalWords] = 0;
  }

  // Where nobody has chosen yet: a wave some rows. Ids lie where the list will be.
  DEVICE static bool RoutesHere() {
    return ReadArgumentsAgain<Args>().route.router.experts != 0;
  }
  DEVICE static void RouteHere(uint32_t rows, Arena arena) {
    if (!RoutesHere()) return;
#pragma clang loop unroll(disable)
    for (uint32_t first = 0; first < rows; first += kWaves) {
      const uint32_t row = first + WaveId();
      if (row >= rows) continue;
      const Args args = ReadArgumentsAgain<Args>();  // kept over the loop they would leave no scalar registers
      const Lds<uint32_t> ids = arena.Get<uint32_t>(kListAt) + row * args.top;
      const Lds<float> weights = arena.Get<float>(kWeightsAt) + row * args.top;
      Route::OneRow(args.route, row, [=](uint32_t slot, uint32_t id, float weight) {
        ids[slot] = id;
        weights[slot] = weight;
      });
    }
    BarrierLds();
  }

  // The experts that rows [first, first + 16) chose, ascending, at kListAt: count, then ids. And what
  // is at kSlotsAt and kWeightsAt.
  DEVICE static void Distinct(const Args& args, uint32_t rows, uint32_t first, Arena arena) {
    const Lds<uint32_t> mask = arena.Get<uint32_t>(kMaskAt);
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    const Lds<uint32_t> slots = arena.Get<uint32_t>(kSlotsAt);
    const uint32_t count = Min(kTileRows, rows - first) * args.top;
    const bool chooses = ThreadId() < count;
    uint32_t id = 0;
    float weight = 0;
    if (RoutesHere()) {
      if (chooses) {
        id = arena.Get<uint32_t>(kListAt)[ThreadId()];
        weight = arena.Get<float>(kWeightsAt)[ThreadId()];
      }
    } else if (ThreadId() < Min(kTileRows, args.most_rows - first) * args.top) {
      // Asked for before the number of rows is known.
      id = At(args.ids)[uint64_t{first} * args.top + ThreadId()];
      weight = At(args.weights)[uint64_t{first} * args.top + ThreadId()];
    }
    if (ThreadId() < kMaskWords) mask[ThreadId()] = 0;
    const u32x4 none = {0, 0, 0, 0};
    arena.Get<u32x4>(kSlotsAt)[ThreadId()] = none;
    static_assert(kMostChoices * kTileRows == kThreads * 16);
    BarrierLds();
    bool is_first = false;  // of those that have this id
    if (chooses) {
      arena.Get<float>(kWeightsAt)[ThreadId()] = weight;
      const uint32_t bit = 1u << id % 32;
      is_first = (OrLds(mask + id / 32, bit) & bit) == 0;
    }
    BarrierLds();
    // An expert's place is the number of set bits before its own.
    const uint32_t bits = LaneId() < kMaskWords ? mask[LaneId()] : 0;
    const uint32_t before = SumBefore(__builtin_popcount(bits));
    const uint32_t words_before = Shuffle(before, id / 32), own = Shuffle(bits, id / 32);
    if (chooses) {
      const uint32_t place = words_before + __builtin_popcount(own & ((1u << id % 32) - 1));
      if (is_first) list[1 + place] = id;
      // A byte each, 0 being none; waves may have bytes of one word.
      const uint32_t at = place * kTileRows + ThreadId() / args.top;
      OrLds(slots + at / 4, (ThreadId() % args.top + 1) << at % 4 * 8);
    }
    if (ThreadId() == kMaskWords) list[0] = before;
    static_assert(kMaskWords < kWave);
    BarrierLds();
  }

  // The slot in which row `row` of the block chose expert `place` of the list; kNoSlot if it did not.
  DEVICE static uint32_t SlotOf(uint32_t row, uint32_t place, Arena arena) {
    return uint32_t{arena.Get<uint8_t>(kSlotsAt)[place * kTileRows + row]} - 1;
  }

  // Strides are less than 4 GiB.
  DEVICE static Tiles ExpertOf(Tiles w, uint64_t stride, uint64_t scale_stride, uint32_t id) {
    w.data.address += uint64_t{static_cast<uint32_t>(stride)} * id;
    w.scales.address += uint64_t{static_cast<uint32_t>(scale_stride)} * id;
    return w;
  }

  // Units are an output tile of an expert each. A workgroup has two at once where there are two, so that it waits once for both. Of
  // few rows there are often fewer units than workgroups, and of fp8 two at once take too many registers: one at a time, then, but
  // where a leaf is of two batches or more each batch, the next unit's first too, is asked for before the last one is waited for.
  static constexpr bool kAhead = IsFp8(kFormat) || (Sums::kFew && kFormat == TileFormat::kBf16);
  static constexpr uint32_t kMostUnits = kAhead || HasCodes(kFormat) ? 1 : 2;
  template <Columns kColumns>
  DEVICE static void GateUp(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                            uint32_t workers, Arena arena) {
    const uint32_t total = Uniform(+arena.Get<uint32_t>(kListAt)[0]) * args.gate_up.outputs;
    const auto x = Operand<kColumns>::Of(At(args.x), args.x_stride,
                                         Min(first + Operand<kColumns>::Row(), rows - 1));
    const uint32_t row = first + ThreadId() / kTileRows;
    const RowFactor factor(args.norm, row, row < rows);
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
      id = Uniform(+arena.Get<uint32_t>(kListAt)[1 + place]);
      const Tiles w = ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id);
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
  DEVICE static void StoreActivated(const Args& args, uint32_t rows, uint32_t first, uint32_t place, uint32_t output, float value,
                                    Arena arena) {
    const uint32_t row = first + ThreadId() / kTileRows;
    const uint32_t slot = row < rows ? SlotOf(row - first, place, arena) : kNoSlot;
    if (slot != kNoSlot) {
      StoreSplit(At(args.act) + (uint64_t{row} * args.top + slot) * args.act_stride,
                 output * kTileRows + ThreadId() % kTileRows, value);
    }
  }

  // Units unit, unit + workers, ...
  template <Columns kColumns, uint32_t kUnits>
  DEVICE static void GateUpUnits(const Args& args, uint32_t rows, uint32_t first, uint32_t unit,
                                 uint32_t workers, const Operand<kColumns>& x,
                                 const RowFactor& factor, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
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
          ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id);
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

  // ---- down: the same tile of several experts at once ----

  [[gnu::always_inline]] static constexpr uint32_t DownBatch(Columns columns) {
    const uint32_t most = columns == Columns::kMany ? 4 : 8;
    if (kDown == TileFormat::kNibble) return most / 4;
    return kDown == TileFormat::kBf16 ? most : most / 2;
  }

  // Which experts and rows a leaf is summed over.
  struct DownUnit {
    Lds<uint32_t> list;
    uint32_t count, output, first, mine;
    Arena arena;
  };

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
    for (uint32_t e = 0; e < kCount; ++e) slots[e] = SlotOf(row, Min(place + e, unit.count - 1), unit.arena);
    KeepOrder();
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kCount; ++e) {
      // A lane whose row did not choose this expert multiplies something finite: its slot 0.
      const uint32_t from = slots[e] != kNoSlot ? slots[e] : 0;
      to[e].x = Operand<kColumns>::Of(At(args.act), args.act_stride, unit.mine * args.top + from);
      const float weight = unit.arena.template Get<float>(kWeightsAt)[row * args.top + from];
      to[e].weight = place + e < unit.count && slots[e] != kNoSlot ? weight : -1.0f;
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
        const Tiles w = ExpertOf(args.down, args.down_stride, args.down_scale_stride, ReadLane(ids, e));
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

  // ---- down, begun early ----

  // Where an output tile of down is two batches a wave at most: all that is known of the workgroup's first one before
  // it may be multiplied is asked for and worked out while the workgroup waits. What is left to do then is to load
  // inputs and to multiply.
  static constexpr bool kEarly = Sums::kFew && kDown == TileFormat::kBf16;
  // For each expert of the list and each of so few rows: bytes from `act` to its input, and its weight, less than 0 where the row
  // did not choose it. A thread each, in what the second tile's sums had.
  static constexpr uint32_t kChoicesAt = kTileLdsBytes;
  static constexpr uint32_t kChoiceRows = 4;
  static_assert(!kEarly || kChoiceRows * kChoiceRows * kRouterMaxTop <= kThreads);
  static_assert(!kEarly || kChoicesAt + kThreads * 8 <= kMaskAt);
  DEVICE static void FillChoices(const Args& args, uint32_t rows, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    const uint32_t count = Uniform(+list[0]);
    const uint32_t place = ThreadId() / kChoiceRows, row = Min(ThreadId() % kChoiceRows, rows - 1);
    const uint32_t slot = SlotOf(row, Min(place, count - 1), arena), from = slot != kNoSlot ? slot : 0;
    const float weight = arena.Get<float>(kWeightsAt)[row * args.top + from];
    const uint32_t at = (row * args.top + from) * args.act_stride * 4;
    arena.Get<u32x2>(kChoicesAt)[ThreadId()] =
        u32x2{at, BitCast<uint32_t>(place < count && slot != kNoSlot ? weight : -1.0f)};
  }

  template <Columns kColumns>
  struct EarlyTiles {
    static constexpr uint32_t kBatch = DownBatch(kColumns), kBatches = 2, kWords = Operand<kColumns>::kWords;
    DownTile pieces[kEarly ? kBatches : 0][kBatch];
    u32x4 in[kEarly ? kBatches : 0][kBatch][DownTile::kSteps][kWords];
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
          pieces[b][e].Load(RowOf<kDown>(ExpertOf(args.down, args.down_stride, args.down_scale_stride,
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
    using Pieces = DownPieces<DownTile, kColumns>;
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
        AddPieces<DownTile, kColumns>(args, unit, leaf.step, totals);
      }
    }
    ForEachTailTile<kDown>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
      AddPieces<decltype(piece), kColumns>(args, unit, step, totals);
    });
    return JoinColumns<kColumns>(totals);
  }

  template <Columns kColumns>
  DEVICE static void Down(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                          uint32_t workers, const Sums& sums, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
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

  // ---- down, where some leaves are empty ----

  // Of few tiles waves would have nothing to do. Then each multiplies some of the experts' tiles, whose
  // leaf it may be, and each thread adds up an element: in the same order, to the same bits.
  // Not where scalar registers are too few: of fp8, whose factors lie there, of codes, which have several
  // ways, and of MXFP4 on a chip that takes it apart in code.
  static constexpr bool kTogether =
      kDown != TileFormat::kFp8 && !HasCodes(kDown) &&
      (kDown != TileFormat::kMxfp4 || isa::kFacts.has_scaled_mfma);
  DEVICE static bool Together(const Tiles& down) {
    return kTogether && down.parts <= 2 && down.steps < down.parts * kPartLeaves * TileSteps(kDown);
  }
  // Experts of a wave at once, and of the workgroup.
  [[gnu::always_inline]] static constexpr uint32_t TogetherEach(Columns columns) {
    if (columns == Columns::kRounded || IsScaled(columns)) return 4;  // as registers hold
    return columns == Columns::kMany ? kScratchTiles / 2 : kScratchTiles;
  }

  // What a wave has asked for of experts place, place + kWaves, ...
  template <class Piece, Columns kColumns>
  struct Asked {
    Piece pieces[TogetherEach(kColumns)];
    uint32_t slots[2];  // of the lane's row, a byte each
    DEVICE uint32_t SlotAt(uint32_t e) const { return slots[e / 4] >> e % 4 * 8 & 0xff; }
  };

  template <class Piece, Columns kColumns>
  DEVICE static Asked<Piece, kColumns> Ask(const Args& args, const DownUnit& unit, uint32_t step,
                                           uint32_t place) {
    constexpr uint32_t kEach = TogetherEach(kColumns);
    static_assert(kEach <= 8);
    Asked<Piece, kColumns> out;
    const uint32_t output = MadeHere(Uniform(unit.output));  // what is made of it takes scalar registers
    const uint32_t last = unit.count - 1, row = MadeBefore(unit.mine - unit.first);
    const uint32_t ids = unit.list[1 + Min(place + MadeBefore(LaneId()) % 8 * kWaves, last)];
    uint32_t slots[kEach];
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
      slots[e] = SlotOf(row, Min(place + e * kWaves, last), unit.arena);
    }
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
      out.pieces[e].Load(RowOf<kDown>(ExpertOf(args.down, args.down_stride,
                                                 args.down_scale_stride, ReadLane(ids, e)),
                                        output),
                         step);
      KeepOrder();  // or addresses of all would be made first, in registers that there are not
    }
    out.slots[0] = out.slots[1] = 0;
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
      // As in ChosenOf.
      out.slots[e / 4] |= (slots[e] != kNoSlot ? slots[e] : 0) << e % 4 * 8;
    }
    return out;
  }

  // The first ones, and the next.
  template <class Piece, Columns kColumns>
  DEVICE static void AskFirst(const Args& args, const DownUnit& unit, uint32_t step,
                              Asked<Piece, kColumns> (&asked)[2]) {
    constexpr uint32_t kAtOnce = TogetherEach(kColumns) * kWaves;
    asked[0] = Ask<Piece, kColumns>(args, unit, step, WaveId());
    if (kAtOnce < unit.count) {
      asked[1] = Ask<Piece, kColumns>(args, unit, step, kAtOnce + WaveId());
    }
  }

  template <Columns kColumns>
  DEVICE static DownUnit UnitOf(uint32_t rows, uint32_t first, uint32_t output, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    return {list,  Uniform(+list[0]), output,
            first, Min(first + Operand<kColumns>::Row(), rows - 1), arena};
  }

  // `early`: `asked` is what the first tile of the first output takes first.
  template <Columns kColumns>
  DEVICE static void DownTogether(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                                  uint32_t workers, bool early,
                                  Asked<DownTile, kColumns> (&asked)[2], const Sums& made, Arena arena) {
    const uint32_t leaves = args.down.parts * kPartLeaves;
    for (uint32_t output = worker; output < args.down.outputs; output += workers) {
      const DownUnit unit = UnitOf<kColumns>(rows, first, output, arena);
      LeafTreeOf<float> tree;
#pragma clang loop unroll(disable)
      for (uint32_t i = 0; i < leaves; ++i) {
        const uint32_t part = i / kPartLeaves;
        const uint32_t begin = part == 0 ? 0 : PartEnd(args.down, part - 1);
        Leaf<kDown> leaf(begin, PartEnd(args.down, part), i % kPartLeaves);
        float totals[Operand<kColumns>::kWords] = {};
#pragma clang loop unroll(disable)
        for (; leaf.tiles > 0; --leaf.tiles, leaf.step += TileSteps(kDown)) {
          if (!early) AskFirst(args, unit, leaf.step, asked);
          early = false;
          AddTogether(args, unit, leaf.step, asked, totals);
        }
        ForEachTailTile<kDown>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
          Asked<decltype(piece), kColumns> own[2];
          AskFirst(args, unit, step, own);
          AddTogether(args, unit, step, own, totals);
        });
        float sum = totals[0];
        if constexpr (kColumns == Columns::kMany) sum = sum + totals[1];
        if constexpr (kColumns == Columns::kFew) sum = sum + RotateRow8(sum);
        tree.Push(i, sum);
      }
      // A wave has four outputs of each row: a row's sixteen leave together, as whole lines.
      const Lds<float> sums = arena.Get<float>();
      sums[LaneRow() * kTileRows + WaveId() * 4 + LanePart()] = tree.Sum(leaves);
      BarrierLds();
      const uint32_t row = first + ThreadId() / kTileRows;
      if (row < rows) made.Put(args, row, output * kTileRows + ThreadId() % kTileRows, sums[ThreadId()]);
      BarrierLds();
    }
  }

  template <class Piece, Columns kColumns>
  using Inputs = u32x4[TogetherEach(kColumns)][Piece::kSteps][Operand<kColumns>::kWords];

  template <class Piece, Columns kColumns>
  DEVICE static void LoadInputs(const Args& args, const DownUnit& unit, const Asked<Piece, kColumns>& asked,
                                uint32_t step, Inputs<Piece, kColumns>& in) {
    KeepOrder();
    const uint32_t mine = MadeBefore(unit.mine * args.top);
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < TogetherEach(kColumns); ++e) {
      LoadSteps<kColumns>(Operand<kColumns>::Of(At(args.act), args.act_stride,
                                                mine + asked.SlotAt(e)),
                          step, in[e]);
    }
    KeepOrder();
  }

  // As AddPieces, of all waves. Weights are asked for two turns before they are multiplied, inputs one.
  template <class Piece, Columns kColumns>
  DEVICE static void AddTogether(const Args& args, const DownUnit& unit, uint32_t step,
                                 Asked<Piece, kColumns> (&asked)[2],
                                 float (&totals)[Operand<kColumns>::kWords]) {
    constexpr uint32_t kAtOnce = TogetherEach(kColumns) * kWaves;
    Inputs<Piece, kColumns> in;
    LoadInputs(args, unit, asked[0], step, in);
#pragma clang loop unroll(disable)
    for (uint32_t place = 0; place < unit.count; place += kAtOnce) {
      FillTable<kAtOnce>(args, unit, place);
      KeepOrder();
      Multiply<Piece, kColumns>(asked[0], in, step, unit.arena);
      if (place + kAtOnce < unit.count) {
        asked[0] = asked[1];
        LoadInputs(args, unit, asked[0], step, in);
        const uint32_t next = place + 2 * kAtOnce;
        if (next < unit.count) {
          asked[1] = Ask<Piece, kColumns>(args, unit, step, next + WaveId());
        }
      }
      BarrierLds();
      AddProducts<kColumns>(Min(kAtOnce, unit.count - place), unit.arena, totals);
      BarrierLds();
    }
  }

  // The wave's products, of experts place, place + kWaves, ..., to LDS.
  template <class Piece, Columns kColumns>
  DEVICE static void Multiply(
      Asked<Piece, kColumns>& asked, const Inputs<Piece, kColumns>& in, uint32_t step,
      Arena arena) {
    constexpr uint32_t kEach = TogetherEach(kColumns), kWords = Operand<kColumns>::kWords;
    const Lds<f32x4> to =
        arena.Get<f32x4>() + MadeBefore(WaveId() * kWords * kWave + LaneId());
    f32x4 sums[kEach][kWords];
    const auto store = [&](uint32_t e) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWords; ++w) {
        to[(e * kWaves * kWords + w) * kWave] = sums[e][w];
      }
    };
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWords; ++w) sums[e][w] = f32x4{0, 0, 0, 0};
      asked.pieces[e].template Add<kColumns>(step, in[e], sums[e]);
      store(e);
    }
  }

  // Of each expert that is multiplied and each row its weight; less than 0 where the row did not choose
  // it, or where there is no expert.
  template <uint32_t kAtOnce>
  DEVICE static void FillTable(const Args& args, const DownUnit& unit, uint32_t place) {
    for (uint32_t i = MadeBefore(ThreadId()); i < kAtOnce * kTileRows; i += kThreads) {
      const uint32_t row = i % kTileRows, at = place + i / kTileRows;
      const uint32_t slot = at < unit.count ? SlotOf(row, at, unit.arena) : kNoSlot;
      unit.arena.template Get<float>(kTableAt)[i] =
          slot != kNoSlot ? unit.arena.template Get<float>(kWeightsAt)[row * args.top + slot] : -1.0f;
    }
  }

  // A thread's element is column LaneRow() of output WaveId() * 4 + LanePart().
  template <Columns kColumns>
  DEVICE static void AddProducts(uint32_t count, Arena arena,
                                 float (&totals)[Operand<kColumns>::kWords]) {
    constexpr uint32_t kWords = Operand<kColumns>::kWords;
    constexpr uint32_t kGroup = 8 / kWords;
    static_assert(TogetherEach(kColumns) * kWaves % kGroup == 0);  // those past the last have no weight
    const uint32_t lane = MadeBefore(LaneId()), column = lane % kTileRows;
    Lds<float> product =
        arena.Get<float>() + (WaveId() * kTileRows + column) * 4 + lane / kTileRows;
    Lds<float> table = arena.Get<float>(kTableAt) +
                       (kColumns == Columns::kFew ? column % kFewRows : column);
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < count; i += kGroup) {
      float weights[kGroup], values[kGroup][kWords];
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kGroup; ++j) {
        weights[j] = table[j * kTileRows];
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) {
          values[j][w] = product[(j * kWords + w) * kTileRows * kTileRows];
        }
      }
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kGroup; ++j) {
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) {
          const float old = totals[w], now = Fma(weights[j], values[j][w], old);
          totals[w] = weights[j] < 0 ? old : now;
        }
      }
      product += kGroup * kWords * kTileRows * kTileRows;
      table += kGroup * kTileRows;
    }
  }

  // ---- down, of any number of rows ----

  // Of several blocks of rows those of an output tile come one behind the other, on one die, whose cache keeps what experts
  // have of that tile. `listed`: there is one block, and its list is there. `early`, `asked`: as DownTogether has them.
  template <Columns kColumns>
  DEVICE static void DownOfBlocks(uint32_t rows, bool listed, uint32_t worker, uint32_t workers, bool early,
                                  Asked<DownTile, kColumns> (&asked)[2], const Sums& sums, Arena arena) {
    constexpr uint32_t kDies = TallGrid::kDies;
#pragma clang loop unroll(disable)
    for (uint32_t t = worker;; t += workers) {
      const Args args = ReadArgumentsAgain<Args>();
      const uint32_t each = CeilDiv(rows, kTileRows) * kDies, turn = Uniform(t / each), place = t - turn * each;
      const uint32_t output = turn * kDies + place % kDies, first = place / kDies * kTileRows;
      if (turn * kDies >= args.down.outputs) return;
      if (output >= args.down.outputs) continue;
      if (!listed) Distinct(args, rows, first, arena);
      if (Together(args.down)) {
        DownTogether<kColumns>(args, rows, first, output, args.down.outputs, early, asked, sums, arena);
      } else {
        Down<kColumns>(args, rows, first, output, args.down.outputs, sums, arena);
      }
      early = false;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_H_
