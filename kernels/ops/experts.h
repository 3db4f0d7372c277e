// SPDX-License-Identifier: MIT
//
// The router's choice and the routed experts of a layer: both products in one launch.
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
#include "kernels/ops/choose.h"
#include "kernels/ops/tiles.h"

namespace mainarch::kernels {

struct Route {
  using Args = RouteArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t rows = StepView(args.step).rows();
    if (worker == 0) {
      for (uint32_t i = ThreadId(); i < kArrivalLines; i += kThreads) {
        At(args.arrivals)[i * kArrivalWords] = 0;
      }
    }
    for (uint32_t row = worker * kWaves + WaveId(); row < rows; row += workers * kWaves) {
      const Args again = ReadArgumentsAgain<Args>();
      const RowFactor factor(again.norm, row, true);
      Router::OneRow(again.router, row, again.stride, again.shared, again.splits,
                     uint64_t{again.split_rows} * again.stride,
                     [&] { return factor.Value(again.norm); });
    }
  }
};

template <TileFormat kFormat, bool kRounded = false>
struct Experts {
  using Args = ExpertsArgs;
  // Tile sums; then of a block of rows the experts that any of them chose, ascending; for each of
  // these and each row the slot in which the row chose it; and the weights of the slots.
  static constexpr uint32_t kIds = kRouterMaxExperts + 32;  // with a shared one
  static constexpr uint32_t kMaskWords = kIds / 32;
  static constexpr uint32_t kMostChoices = kTileRows * kRouterMaxTop;
  static constexpr uint32_t kListAt = kTileLdsBytes + kMaskWords * 4;
  static constexpr uint32_t kSlotsAt = kListAt + (kMostChoices + 1) * 4;  // bytes
  static constexpr uint32_t kWeightsAt = kSlotsAt + kMostChoices * kTileRows;
  static constexpr uint32_t kLdsBytes = kWeightsAt + kMostChoices * 4;
  static_assert(kMostChoices <= kThreads);
  static constexpr uint32_t kNoSlot = ~0u;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    if constexpr (kRounded) {
      Both<Columns::kRounded>(args, worker, workers, arena);
    } else if (args.most_rows <= kFewRows) {
      Both<Columns::kFew>(args, worker, workers, arena);
    } else {
      Both<Columns::kMany>(args, worker, workers, arena);
    }
  }

  template <Columns kColumns>
  DEVICE static void Both(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows();
    const Args up = ReadArgumentsAgain<Args>();
    for (uint32_t first = 0; first < rows; first += kTileRows) {
      Distinct(up, rows, first, arena);
      GateUp<kColumns>(up, rows, first, worker, workers, arena);
    }
    HandOver(At(ReadArgumentsAgain<Args>().arrivals), worker, workers);
    const Args down = ReadArgumentsAgain<Args>();
    for (uint32_t first = 0; first < rows; first += kTileRows) {
      if (rows > kTileRows) Distinct(down, rows, first, arena);  // else it is there already
      Down<kColumns>(down, rows, first, worker, workers, arena);
    }
  }

  // Nobody goes on before all have stored what they had to. They are counted in several lines, which
  // are added to at once; the last one of a line counts it in one more, and that is the only one
  // looked at, by a lane of each workgroup.
  DEVICE static void HandOver(Global<uint32_t> lines, uint32_t worker, uint32_t workers) {
    const Global<uint32_t> full = lines + kArrivalGroups * kArrivalWords;
    const uint32_t group = worker % kArrivalGroups, groups = Min(workers, kArrivalGroups);
    const bool leader = ThreadId() == 0;
    WaitVectorMemory();
    Barrier();
    if (leader) {
      const uint32_t members = (workers - group + kArrivalGroups - 1) / kArrivalGroups;
      FenceRelease<Scope::kDevice>();
      if (AddFlag<Scope::kDevice>(lines + group * kArrivalWords, 1u) + 1 == members) {
        // What the others of the line have stored goes on with this one's count.
        FenceAcquire<Scope::kDevice>();
        FenceRelease<Scope::kDevice>();
        AddFlag<Scope::kDevice>(full, 1u);
      }
    }
    Await<Scope::kDevice, Until::kEqual>(full, groups, leader);
  }

  // The experts that rows [first, first + 16) chose, ascending, at kListAt: count, then ids. And what
  // is at kSlotsAt and kWeightsAt.
  DEVICE static void Distinct(const Args& args, uint32_t rows, uint32_t first, Arena arena) {
    const Lds<uint32_t> mask = arena.Get<uint32_t>(kTileLdsBytes);
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    const Lds<uint32_t> slots = arena.Get<uint32_t>(kSlotsAt);
    const uint32_t count = Min(kTileRows, rows - first) * args.top;
    const bool chooses = ThreadId() < count;
    uint32_t id = 0;
    float weight = 0;
    if (chooses) {
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
    if (chooses) {
      const uint32_t bit = 1u << id % 32;
      uint32_t place = __builtin_popcount(mask[id / 32] & (bit - 1));
      for (uint32_t w = 0; w < id / 32; ++w) place += __builtin_popcount(mask[w]);
      if (is_first) list[1 + place] = id;
      // A byte each, 0 being none; waves may have bytes of one word.
      const uint32_t at = place * kTileRows + ThreadId() / args.top;
      OrLds(slots + at / 4, (ThreadId() % args.top + 1) << at % 4 * 8);
    }
    if (WaveId() == 0) {
      const uint32_t bits = LaneId() < kMaskWords ? __builtin_popcount(mask[LaneId()]) : 0;
      const uint32_t all = WaveSum(bits);
      if (LaneId() == 0) list[0] = all;
    }
    static_assert(kMaskWords <= kWave);
    BarrierLds();
  }

  // The slot in which row `row` of the block chose expert `place` of the list; kNoSlot if it did not.
  DEVICE static uint32_t SlotOf(uint32_t row, uint32_t place, Arena arena) {
    return uint32_t{arena.Get<uint8_t>(kSlotsAt)[place * kTileRows + row]} - 1;
  }

  DEVICE static Tiles ExpertOf(Tiles w, uint64_t stride, uint64_t scale_stride, uint32_t id) {
    w.data.address += stride * id;
    w.scales.address += scale_stride * id;
    return w;
  }

  template <Columns kColumns>
  DEVICE static void GateUp(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                            uint32_t workers, Arena arena) {
    const uint32_t row = first + ThreadId() / kTileRows;
    const RowFactor factor(args.norm, row, row < rows);
    const auto x = Operand<kColumns>::Of(At(args.x), args.x_stride,
                                         Min(first + Operand<kColumns>::Row(), rows - 1));
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    const uint32_t total = Uniform(+list[0]) * args.gate_up.outputs;
    const float by = factor.Value(args.norm);
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t output = t % args.gate_up.outputs, place = t / args.gate_up.outputs;
      const uint32_t id = Uniform(+list[1 + place]);
      const WaveSums<kFormat, kColumns, 2> sums(
          ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id), 2 * output,
          x);
      const float gate = AddWaves(sums.of[0], arena.Get<float>());
      const float value = Silu(gate * by) * (AddWaves(sums.of[1], arena.Get<float>()) * by);
      const uint32_t slot = row < rows ? SlotOf(row - first, place, arena) : kNoSlot;
      if (slot != kNoSlot) {
        StoreSplit(At(args.act) + (uint64_t{row} * args.top + slot) * args.act_stride,
                   output * kTileRows + ThreadId() % kTileRows, value);
      }
    }
    BarrierLds();
  }

  // ---- down: the same tile of several experts at once ----

  static constexpr uint32_t DownBatch(Columns columns) {
    const uint32_t most = columns == Columns::kMany ? 4 : 8;
    return kFormat == TileFormat::kBf16 ? most : most / 2;
  }

  // One of the batch: where its weights are, its input, and its weight in this lane's row's sum.
  template <Columns kColumns>
  struct Chosen {
    TileRow w[1];
    Operand<kColumns> x;
    float weight;
    bool real;
  };

  template <Columns kColumns>
  DEVICE static Chosen<kColumns> ChosenOf(const Args& args, Lds<uint32_t> list, uint32_t place,
                                          uint32_t count, uint32_t output, uint32_t first,
                                          uint32_t mine, Arena arena) {
    Chosen<kColumns> out;
    const uint32_t at = Min(place, count - 1);
    const uint32_t id = Uniform(+list[1 + at]);
    out.w[0] = RowOf<kFormat>(
        ExpertOf(args.down, args.down_stride, args.down_scale_stride, id), output);
    // A lane whose row did not choose this expert multiplies something finite: its slot 0.
    const uint32_t slot = SlotOf(mine - first, at, arena);
    out.real = place < count && slot != kNoSlot;
    const uint32_t from = slot != kNoSlot ? slot : 0;
    out.x = Operand<kColumns>::Of(At(args.act), args.act_stride, mine * args.top + from);
    out.weight = arena.Get<float>(kWeightsAt)[(mine - first) * args.top + from];
    return out;
  }

  template <Columns kColumns>
  DEVICE static void AddChosen(const Chosen<kColumns>& chosen,
                               const f32x4 (&sums)[Operand<kColumns>::kWords],
                               f32x4 (&totals)[Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) {
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) {
        const float value = sums[i][e], old = totals[i][e], now = Fma(chosen.weight, value, old);
        totals[i][e] = chosen.real ? now : old;
      }
    }
  }

  // Which experts and rows a leaf is summed over.
  struct DownUnit {
    Lds<uint32_t> list;
    uint32_t count, output, first, mine;
    Arena arena;
  };

  // One leaf of down's k: the weighted sum over the experts of the list.
  template <Columns kColumns>
  DEVICE static f32x4 DownLeaf(const Args& args, const DownUnit& unit, Leaf<kFormat> leaf) {
    f32x4 totals[Operand<kColumns>::kWords];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) totals[i] = f32x4{0, 0, 0, 0};
#pragma clang loop unroll(disable)
    for (; leaf.tiles > 0; --leaf.tiles, leaf.step += TileSteps(kFormat)) {
      AddPieces<DownTile, kColumns>(args, unit, leaf.step, totals);
    }
    ForEachTailTile<kFormat>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
      AddPieces<decltype(piece), kColumns>(args, unit, step, totals);
    });
    return JoinColumns<kColumns>(totals);
  }

  struct DownTile : WholeTiles<kFormat, 1> {
    template <Columns kColumns>
    DEVICE void Add(uint32_t step, const u32x4 (&x)[TileSteps(kFormat)][Operand<kColumns>::kWords],
                    f32x4 (&sums)[Operand<kColumns>::kWords]) const {
      AddTile<kFormat, 1, kColumns>(*this, 0, step, x, sums);
    }
  };

  // The piece of each expert's k at `step`, some experts' at once.
  template <class Piece, Columns kColumns>
  DEVICE static void AddPieces(const Args& args, const DownUnit& unit, uint32_t step,
                               f32x4 (&totals)[Operand<kColumns>::kWords]) {
    constexpr uint32_t kBatch = DownBatch(kColumns), kWords = Operand<kColumns>::kWords;
#pragma clang loop unroll(disable)
    for (uint32_t place = 0; place < unit.count; place += kBatch) {
      Chosen<kColumns> chosen[kBatch];
      Piece pieces[kBatch];
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) {
        chosen[e] = ChosenOf<kColumns>(args, unit.list, place + e, unit.count, unit.output,
                                       unit.first, unit.mine, unit.arena);
        pieces[e].Load(chosen[e].w[0], step);
      }
      KeepOrder();
      u32x4 in[kBatch][Piece::kSteps][kWords];
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) LoadSteps<kColumns>(chosen[e].x, step, in[e]);
      KeepOrder();
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < kBatch; ++e) {
        f32x4 sums[kWords];
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) sums[i] = f32x4{0, 0, 0, 0};
        pieces[e].template Add<kColumns>(step, in[e], sums);
        AddChosen<kColumns>(chosen[e], sums, totals);
      }
    }
  }

  template <Columns kColumns>
  DEVICE static void Down(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                          uint32_t workers, Arena arena) {
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    const uint32_t count = Uniform(+list[0]);
    const uint32_t mine = Min(first + Operand<kColumns>::Row(), rows - 1);
    const uint32_t row = first + ThreadId() / kTileRows;
    for (uint32_t output = worker; output < args.down.outputs; output += workers) {
      const DownUnit unit = {list, count, output, first, mine, arena};
      LeafTree tree;
      ForEachLeaf<kFormat>(args.down, 0, args.down.parts, [&](uint32_t i, Leaf<kFormat> leaf) {
        tree.Push(i, DownLeaf<kColumns>(args, unit, leaf));
      });
      const float sum = AddWaves(tree.Sum(args.down.parts), arena.Get<float>());
      if (row < rows) {
        At(args.out)[uint64_t{row} * args.out_stride + output * kTileRows +
                     ThreadId() % kTileRows] = sum;
      }
    }
    BarrierLds();
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_H_
