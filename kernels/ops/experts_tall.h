// SPDX-License-Identifier: MIT
//
// Gate and up of routed experts in steps of many rows: rows are grouped by expert first, so that an expert's weights are read
// once for all that chose it. To the bit what ops/experts.h makes of each pair of a row and an expert.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_TALL_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_TALL_H_

#include "kernels/experts_args.h"
#include "kernels/ops/tall.h"

namespace mainarch::kernels {

// A wave an expert: it looks at all choices twice, and counts those of smaller ids, before which its own lie.
struct ExpertsGroup {
  using Args = ExpertsGroupArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kBatch = 8;  // choices that a lane asks for at once

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t pairs = StepView(args.step).rows() * args.top;
    for (uint32_t expert = worker * kWaves + WaveId(); expert < args.experts; expert += workers * kWaves) {
      One(args, expert, pairs);
    }
  }

  DEVICE static void One(const Args& args, uint32_t expert, uint32_t pairs) {
    uint32_t before = 0, own = 0;
    ForEach(args, pairs, [&](uint32_t, uint32_t id, bool real) {
      before += Count(real && id < expert);
      own += Count(real && id == expert);
    });
    const uint32_t blocks = ExpertBlocks(args.most_rows), of_block = kExpertRows * args.top;
    const Global<uint32_t> starts = At(args.lists) + expert * (blocks + 1), to = At(args.lists) + args.experts * (blocks + 1);
    const uint32_t end = before + own;
    uint32_t block = 0;  // the next to begin
    static_assert(kExpertRows % kWave == 0);
    ForEach(args, pairs, [&](uint32_t at, uint32_t id, bool real) {
      if (Uniform(at) == block * of_block && block < blocks) {
        if (LaneId() == 0) starts[block] = before;
        ++block;
      }
      const bool is_own = real && id == expert;
      const uint64_t all = Ballot(is_own);
      const uint32_t behind = static_cast<uint32_t>(__builtin_popcountll(all & ((uint64_t{1} << LaneId()) - 1)));
      const uint32_t row = at / args.top;
      if (is_own) to[before + behind] = ExpertPair(row, at - row * args.top);
      before += static_cast<uint32_t>(__builtin_popcountll(all));
    });
    for (; block <= blocks; ++block) {  // behind the step's last row
      if (LaneId() == 0) starts[block] = end;
    }
  }
  // f(place, id, whether there is such a place) of each choice, a lane's.
  template <class F>
  DEVICE static void ForEach(const Args& args, uint32_t pairs, F f) {
    const Global<const uint32_t> ids = At(args.ids);
#pragma clang loop unroll(disable)
    for (uint32_t first = 0; first < pairs; first += kBatch * kWave) {
      uint32_t own[kBatch];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kBatch; ++i) own[i] = ids[Min(first + i * kWave + LaneId(), pairs - 1)];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kBatch; ++i) {
        const uint32_t at = first + i * kWave + LaneId();
        f(at, own[i], at < pairs);
      }
    }
  }
  DEVICE static uint32_t Count(bool own) { return static_cast<uint32_t>(__builtin_popcountll(Ballot(own))); }
};

// The rows of x that a workgroup has: those of an expert's pairs.
struct TallPairs {
  Global<const uint32_t> pairs;
  uint32_t count, top, expert;
  DEVICE uint32_t Pair(uint32_t i) const { return pairs[Min(i, count - 1)]; }
  DEVICE uint32_t In(const MatmulArgs&, uint32_t i) const { return PairRow(Pair(i)); }
  DEVICE uint32_t Factor(uint32_t i) const { return PairRow(Pair(i)); }
  DEVICE bool HasFactor(const MatmulArgs&, uint32_t i) const { return Has(i); }
  DEVICE bool Has(uint32_t i) const { return i < count; }
  DEVICE uint32_t Out(uint32_t i) const {
    const uint32_t pair = Pair(i);
    return PairRow(pair) * top + PairSlot(pair);
  }
};

// A workgroup has kOutputs tiles of an expert and a block of its pairs. Blocks of most experts there are few: first blocks of
// all come first.
template <TileFormat kFormat, Taken kTaken = Taken::kBoth, bool kAny = false>
struct ExpertsTall {
  using Args = ExpertsTallArgs;
  using Product = Tall<kFormat, kAny ? TallKind::kGateUpAny : TallKind::kGateUp, kTaken>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes, kOutputs = Product::kOutputs;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    // Told apart out here: within a unit's code registers would be too few.
    if constexpr (kTaken == Taken::kScaled) {
      if (LeafTiles(kFormat, args.any.product.w) % 2 == 0) {
        Units(args, worker, workers, arena, typename Product::template Scaled<false>());
      } else {
        Units(args, worker, workers, arena, typename Product::template Scaled<true>());
      }
    } else if constexpr (HasCodes(kFormat)) {
      ForEachCode<kFormat>([&](auto tag) { OneCode<tag.kValue>(args, worker, workers, arena); });
    } else {
      OneCode<TileCode::kByTile>(args, worker, workers, arena);
    }
  }

 private:
  template <TileCode kCode>
  DEVICE static void OneCode(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const Tiles& w = args.any.product.w;
    if (HasCodes(kFormat) && w.code != kCode) return;
    if (!Product::kRagged || IsOfBlocks(kFormat, w)) {
      Units(args, worker, workers, arena, typename Product::template OfBlocks<kCode>{kPartLeaves});
    } else if constexpr (Product::kRagged) {
      Units(args, worker, workers, arena, typename Product::Ragged());
    }
  }
  template <class Way>
  DEVICE static void Units(const Args& args, uint32_t worker, uint32_t workers, Arena arena, const Way& way) {
    const MatmulArgs& product = args.any.product;
    const uint32_t groups = CeilDiv(product.w.outputs, kOutputs), units = args.experts * groups;
    const uint32_t blocks = CeilDiv(StepView(product.step).rows(), Way::Rows::kRows);
    for (uint32_t t = worker; t < units * blocks; t += workers) {
      const uint32_t block = Uniform(t / units), unit = t - block * units;
      const uint32_t expert = Uniform(unit / groups), group = unit - expert * groups;
      OneUnit(ReadArgumentsAgain<Args>(), expert, group * kOutputs, block * Way::Rows::kRows, arena, way);
    }
  }

  template <class Way>
  DEVICE static void OneUnit(const Args& args, uint32_t expert, uint32_t output, uint32_t first, Arena arena, const Way& way) {
    const uint32_t blocks = ExpertBlocks(args.any.product.rows);
    const Global<const uint32_t> starts = At(args.lists) + expert * (blocks + 1);
    const uint32_t begin = Uniform(starts[0]) + first, end = Uniform(starts[blocks]);
    if (begin >= end) return;
    const Global<const uint32_t> all = At(args.lists) + args.experts * (blocks + 1);
    const TallPairs pairs = {all + begin, Min(end - begin, Way::Rows::kRows), args.top, expert};
    const MatmulArgs& product = args.any.product;
    Tiles tiles = product.w;
    tiles.data.address += args.stride * expert;
    tiles.scales.address += args.scale_stride * expert;
    Product::Unit(product, tiles, output, pairs, arena, way);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_TALL_H_
