// SPDX-License-Identifier: MIT
//
// The router's choice and the routed experts of a layer: both products in one launch.
//
// All rows of a block of 16 are columns of every matrix instruction, so an expert's weights are
// read once for all the rows that chose it, with no sorting and no permutation: rows that did not
// choose it are computed too and dropped. Experts are added in ascending id, whoever chose them, so
// a row's bits do not depend on the others; and in each leaf of k apart, before leaves are added in
// the tree (ops/tiles.h), so that they do not depend on the number of ranks.
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
    for (uint32_t row = worker * kWaves + WaveId(); row < rows; row += workers * kWaves) {
      Router::OneRow(args.router, row, args.stride, args.shared);
    }
  }
};

template <TileFormat kFormat, bool kRounded = false>
struct Experts {
  using Args = ExpertsArgs;
  // Tile sums; then of a block of rows the experts that any of them chose, ascending; then its ids,
  // [rows][top].
  static constexpr uint32_t kIds = kRouterMaxExperts + 32;  // with a shared one
  static constexpr uint32_t kMaskWords = kIds / 32;
  static constexpr uint32_t kListAt = kTileLdsBytes + kMaskWords * 4;
  static constexpr uint32_t kIdsAt = kListAt + (kTileRows * kRouterMaxTop + 1) * 4;
  static constexpr uint32_t kLdsBytes = kIdsAt + kTileRows * kRouterMaxTop * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t rows = step.rows();
    for (uint32_t first = 0; first < rows; first += kTileRows) {
      GateUp(args, rows, first, worker, workers, arena);
    }
    uint32_t round = 0;
    GridBarrier<Scope::kDevice>(At(args.arrivals), workers, round, ThreadId() == 0);
    const Args down = ReadArgumentsAgain<Args>();
    for (uint32_t first = 0; first < rows; first += kTileRows) {
      Down(down, rows, first, worker, workers, arena);
    }
  }

  // The distinct experts of rows [first, first + 16), ascending, at kListAt: count, then ids. And
  // the rows' ids, at kIdsAt.
  DEVICE static Lds<uint32_t> Distinct(const Args& args, uint32_t rows, uint32_t first,
                                       Arena arena) {
    const Lds<uint32_t> mask = arena.Get<uint32_t>(kTileLdsBytes);
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    if (ThreadId() < kMaskWords) mask[ThreadId()] = 0;
    BarrierLds();
    const uint32_t count = Min(kTileRows, rows - first) * args.top;
    if (ThreadId() < count) {
      const uint32_t id = At(args.ids)[uint64_t{first} * args.top + ThreadId()];
      arena.Get<uint32_t>(kIdsAt)[ThreadId()] = id;
      OrLds(mask + id / 32, 1u << id % 32);
    }
    BarrierLds();
    // Thread t decides on experts t, t + 256, ...: its place is the number of set bits before it.
    for (uint32_t id = ThreadId(); id < kIds; id += kThreads) {
      const uint32_t word = mask[id / 32], bit = 1u << id % 32;
      uint32_t before = __builtin_popcount(word & (bit - 1));
      for (uint32_t w = 0; w < id / 32; ++w) before += __builtin_popcount(mask[w]);
      if (word & bit) list[1 + before] = id;
      if (id == kIds - 1) list[0] = before + ((word & bit) != 0);
    }
    BarrierLds();
    return list;
  }

  // The slot in which row `row` of the block chose expert `id`; args.top if it did not.
  DEVICE static uint32_t SlotOf(const Args& args, uint32_t row, uint32_t id, Arena arena) {
    const Lds<const uint32_t> ids = arena.Get<uint32_t>(kIdsAt) + row * args.top;
    uint32_t slot = args.top, s = 0;
    do {
      if (ids[s] == id) slot = s;
    } while (++s < args.top);
    return slot;
  }

  DEVICE static Tiles ExpertOf(Tiles w, uint64_t stride, uint64_t scale_stride, uint32_t id) {
    w.data.address += stride * id;
    w.scales.address += scale_stride * id;
    return w;
  }

  DEVICE static void GateUp(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                            uint32_t workers, Arena arena) {
    const Lds<uint32_t> list = Distinct(args, rows, first, arena);
    const uint32_t total = Uniform(+list[0]) * args.gate_up.outputs;
    const InputRow<true> x =
        MakeInput(At(args.x), args.x_stride, args.norm, Min(first + LaneRow(), rows - 1));
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t output = t % args.gate_up.outputs;
      const uint32_t id = Uniform(+list[1 + t / args.gate_up.outputs]);
      const WaveSums<kFormat, 2, kRounded> sums(
          ExpertOf(args.gate_up, args.gate_up_stride, args.gate_up_scale_stride, id), 2 * output,
          x);
      const float gate = AddWaves(sums.of[0], arena.Get<float>());
      const float value = Silu(gate) * AddWaves(sums.of[1], arena.Get<float>());
      const uint32_t row = first + ThreadId() / kTileRows;
      const uint32_t slot = row < rows ? SlotOf(args, row - first, id, arena) : args.top;
      if (slot < args.top) {
        At(args.act)[(uint64_t{row} * args.top + slot) * args.act_stride + output * kTileRows +
                     ThreadId() % kTileRows] = value;
      }
    }
    BarrierLds();
  }

  // Of one output tile, this wave's leaves, each summed over the experts so far: rows of the matrix
  // unit's columns, as its results lie.
  struct LeafTotals {
    f32x4 of[kMaxParts] = {};

    // `index` is the same in all lanes; a register has no index, so each is asked.
    DEVICE void Add(uint32_t index, bool chosen, float weight, f32x4 value) {
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < kMaxParts; ++k) {
        if (index != k) continue;
#pragma clang loop unroll(full)
        for (int i = 0; i < 4; ++i) {
          const float old = of[k][i], now = Fma(weight, value[i], old);
          of[k][i] = chosen ? now : old;
        }
      }
    }
  };

  DEVICE static void Down(const Args& args, uint32_t rows, uint32_t first, uint32_t worker,
                          uint32_t workers, Arena arena) {
    const Lds<uint32_t> list = Distinct(args, rows, first, arena);
    const uint32_t count = Uniform(+list[0]);
    const uint32_t mine = Min(first + LaneRow(), rows - 1);
    const uint32_t row = first + ThreadId() / kTileRows;
    for (uint32_t output = worker; output < args.down.outputs; output += workers) {
      LeafTotals totals;
      for (uint32_t e = 0; e < count; ++e) {
        const uint32_t id = Uniform(+list[1 + e]);
        // A lane whose row did not choose this expert multiplies something finite: its slot 0.
        const uint32_t slot = SlotOf(args, mine - first, id, arena);
        const bool chosen = slot < args.top;
        const uint32_t at = mine * args.top + (chosen ? slot : 0);
        const InputRow<false> x = MakeInput(At(args.act), args.act_stride, at);
        const float weight = At(args.weights)[at];
        ForEachLeaf<kFormat, kRounded>(
            ExpertOf(args.down, args.down_stride, args.down_scale_stride, id), output, x,
            [&](uint32_t i, f32x4 sum) { totals.Add(i, chosen, weight, sum); });
      }
      AddTree(totals.of, args.down.parts, [](f32x4 a, f32x4 b) { return a + b; });
      const float sum = AddWaves(totals.of[0], arena.Get<float>());
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
