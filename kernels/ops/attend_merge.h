// SPDX-License-Identifier: MIT
//
// What splits of a row's attention have left, merged: the order of additions, and the launch of its own that does so.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_MERGE_H_
#define MAINARCH_KERNELS_OPS_ATTEND_MERGE_H_

#include "kernels/latent_args.h"
#include "kernels/long_args.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// How many of a launch's rows the step has.
DEVICE uint32_t RowsHere(const StepView& step, uint32_t first, uint32_t count) {
  return step.rows() <= first ? 0 : Min(step.rows() - first, count);
}

// Whether neighbouring rows are of one sequence, whose rows lie one behind the other in a step.
DEVICE bool IsOneRun(const StepView& step, uint32_t first, uint32_t count) {
  const StepView::Place begin = step.place(first), end = step.place(first + count - 1);
  return begin.pages == end.pages && begin.position + count - 1 == end.position;
}
// Whether attend_prompt_* has the row: the block of `run_rows` that it is in, of a launch's `rows` from `first` on.
DEVICE bool IsOfPrompt(const StepView& step, uint32_t run_rows, uint32_t first, uint32_t rows, uint32_t row) {
  if (run_rows == 0) return false;
  const uint32_t at = (row - first) / run_rows * run_rows;
  return IsOneRun(step, first + at, Min(rows - at, run_rows));
}
// Whether it has all of them: a lane asks for a block.
DEVICE bool AreAllOfPrompt(const StepView& step, uint32_t run_rows, uint32_t first, uint32_t rows) {
  if (run_rows == 0) return false;
  bool all = true;
  for (uint32_t begin = 0; begin < rows; begin += kWave * run_rows) {
    const uint32_t at = begin + LaneId() * run_rows, own = at < rows ? at : begin;
    all = all && IsOneRun(step, first + own, Min(rows - own, run_rows));
  }
  return Ballot(!all) == 0;
}

// The largest (the sum) over the four lanes of a column.
DEVICE float ColumnMax(float x) {
  x = __builtin_fmaxf(x, BitCast<float>(isa::SwapRows(BitCast<uint32_t>(x))));
  return __builtin_fmaxf(x, BitCast<float>(isa::SwapHalves(BitCast<uint32_t>(x))));
}
DEVICE float ColumnSum(float x) {
  x += BitCast<float>(isa::SwapRows(BitCast<uint32_t>(x)));
  return x + BitCast<float>(isa::SwapHalves(BitCast<uint32_t>(x)));
}

// What a head's element becomes: times the sigmoid of its gate, where there is one.
template <class Args>
DEVICE void StoreGated(const Args& args, uint32_t row, uint32_t column, float value) {
  if (args.gate.address != 0) {
    const float gate = At(args.gate)[uint64_t{row} * args.gate_stride + column];
    value *= Sigmoid(gate);
  }
  StoreSplit(At(args.out) + uint64_t{row} * args.out_stride, column, value);
}

// One more score, of a token whose V is zero. o and total are sums of exp of what scores are above `largest`.
DEVICE void AddSink(float sink, float largest, float& o, float& total) {
  const float now = __builtin_fmaxf(largest, sink), keep = Exp(largest - now);
  o *= keep;
  total = Fma(total, keep, Exp(sink - now));
}

// Splits of a row are added in kMergeChains chains, split s in chain s % kMergeChains, each in order and beside the
// largest score of its own; then chains are. So a chain needs nothing of the others, whoever makes it.
// A workgroup: thread t finds the scores of splits of chain t % kMergeChains.
struct MergeChains {
  static constexpr uint32_t kOfWaves = kWaves * kMergeChains;  // floats
  static constexpr uint32_t kBytes = (2 * kOfWaves + 2 * kMergeChains) * 4;
  Lds<float> wave_peaks, wave_totals, peaks, totals;  // of each wave's chains; of each chain the largest score, the sum

  DEVICE MergeChains(Arena arena, uint32_t at)
      : wave_peaks(arena.Get<float>(at)),
        wave_totals(wave_peaks + kOfWaves),
        peaks(wave_totals + kOfWaves),
        totals(peaks + kMergeChains) {}
  DEVICE static uint32_t Chain() { return LaneId() % kMergeChains; }

  // The largest (the sum) over the threads of a chain: a barrier each. Another is to come before the next one's.
  DEVICE float Largest(float x) const {
    return Fold(ColumnMax(x), wave_peaks, [](float a, float b) { return __builtin_fmaxf(a, b); });
  }
  DEVICE float Sum(float x) const {
    return Fold(ColumnSum(x), wave_totals, [](float a, float b) { return a + b; });
  }
  template <class Op>
  DEVICE static float Fold(float of_wave, Lds<float> waves, Op op) {
    if (LaneId() < kMergeChains) waves[WaveId() * kMergeChains + LaneId()] = of_wave;
    BarrierLds();
    float all = waves[Chain()];
#pragma clang loop unroll(full)
    for (uint32_t w = 1; w < kWaves; ++w) all = op(all, waves[w * kMergeChains + Chain()]);
    return all;
  }
  DEVICE void Keep(float largest, float total) const {
    if (ThreadId() >= kMergeChains) return;
    peaks[Chain()] = largest;
    totals[Chain()] = total;
  }
  // What all chains make of an element, of which chain c has sums[c * apart]; Keep and a barrier before. Lanes call it by
  // whole rows of sixteen: each finds the share of its own chain, and tells the others.
  struct Merged {
    float o = 0, largest, total = 0;
  };
  DEVICE Merged Together(Lds<const float> sums, uint32_t apart) const {
    Merged all;
    const float own = peaks[Chain()];
    all.largest = MaxRow16(own);
    const uint32_t own_share = BitCast<uint32_t>(Exp(own - all.largest));
#pragma clang loop unroll(full)
    for (uint32_t c = 0; c < kMergeChains; ++c) {
      const float share = BitCast<float>(ReadLane(own_share, c));
      all.o = Fma(sums[c * apart], share, all.o);
      all.total = Fma(totals[c], share, all.total);
    }
    return all;
  }
};
// An element of a row's head `head`; `column`: of the row.
template <class Args>
DEVICE void StoreMerged(const Args& args, uint32_t row, uint32_t head, uint32_t column, MergeChains::Merged all) {
  if (args.sinks.address != 0) AddSink(At(args.sinks)[head], all.largest, all.o, all.total);
  StoreGated(args, row, column, all.o / all.total);
}

// Rows of more than one split: a workgroup a (row, kColumns elements of a head, or all): the same order of additions
// for any kColumns. Chains are dealt out over so many groups of threads as columns leave.
template <class Splits, uint32_t kColumns>
struct MergeSplits {
  using Args = AttendMergeArgs;
  static constexpr uint32_t kBatch = 16;         // parts that a thread asks for at once
  static constexpr uint32_t kChains = kMergeChains;
  static constexpr uint32_t kShares = kThreads;  // whose shares are known at once
  static constexpr uint32_t kSumsAt = kShares * 4, kChainsAt = kSumsAt + kChains * kColumns * 4;
  static constexpr uint32_t kLdsBytes = kChainsAt + MergeChains::kBytes;
  static_assert(kShares % kChains == 0 && kBatch % (kChains * kColumns / kThreads) == 0);

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const bool narrow = kColumns > 32 && args.head_dim % kColumns != 0;
    const uint32_t slices = args.head_dim / (narrow ? 32 : kColumns), units = args.heads * slices;
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * units;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = args.first_row + t / units, unit = t % units;
      const uint32_t splits = Splits::Of(args, step.position(row));
      if (splits <= 1) continue;
      if (narrow) {
        OneSlice<32>(args, row, unit / slices, unit % slices, splits, arena);
      } else {
        OneSlice<kColumns>(args, row, unit / slices, unit % slices, splits, arena);
      }
    }
  }

  // kWidth elements of a head.
  template <uint32_t kWidth>
  DEVICE static void OneSlice(const Args& args, uint32_t row, uint32_t head, uint32_t slice,
                              uint32_t splits, Arena arena) {
    constexpr uint32_t kGroups = kThreads / kWidth, kOwn = kChains / kGroups;  // chains of a thread
    const uint32_t hd = args.head_dim, column = AttendPartFloats(hd), begin = slice * kWidth;
    const Global<const float> parts =
        At(args.parts) +
        (uint64_t{row - args.first_row} * args.heads + head) * args.max_splits * column;
    const Lds<float> shares = arena.Get<float>(), sums = arena.Get<float>(kSumsAt);
    const MergeChains chains(arena, kChainsAt);
    float largest = -1e30f;
    for (uint32_t s = ThreadId(); s < splits; s += kThreads) {
      largest = __builtin_fmaxf(largest, parts[uint64_t{s} * column + hd]);
    }
    largest = chains.Largest(largest);
    const uint32_t group = ThreadId() / kWidth, in_slice = ThreadId() % kWidth, d = begin + in_slice;
    float o[kOwn] = {}, total = 0;
    for (uint32_t first = 0; first < splits; first += kShares) {
      const uint32_t s = first + ThreadId();
      float share = 0;
      if (s < splits) {
        const Global<const float> part = parts + uint64_t{s} * column;
        share = Exp(part[hd] - largest);
        total = Fma(part[hd + 1], share, total);
      }
      shares[ThreadId()] = share;
      BarrierLds();
      const uint32_t count = Min(splits - first, kShares);
      for (uint32_t i = group; i < count; i += kBatch * kGroups) {
        AddBatch<kGroups>(parts + uint64_t{first} * column + d, column, shares, i, count, o);
      }
      BarrierLds();
    }
    chains.Keep(largest, chains.Sum(total));
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kOwn; ++k) sums[(group + k * kGroups) * kWidth + in_slice] = o[k];
    BarrierLds();
    if (ThreadId() < kWidth) StoreMerged(args, row, head, head * hd + d, chains.Together(sums + in_slice, kWidth));
    BarrierLds();
  }

  // Parts i, i + kGroups, ... of those that `shares` are of: kBatch of them, as far as there are so many.
  template <uint32_t kGroups>
  DEVICE static void AddBatch(Global<const float> parts, uint32_t column, Lds<const float> shares,
                              uint32_t i, uint32_t count, float (&o)[kChains / kGroups]) {
    float values[kBatch], by[kBatch];
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t at = Min(i + k * kGroups, count - 1);
      values[k] = parts[uint64_t{at} * column];
      by[k] = i + k * kGroups < count ? shares[at] : 0.0f;
    }
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kBatch; ++k) {
      float& chain = o[k % (kChains / kGroups)];
      chain = Fma(values[k], by[k], chain);
    }
  }
};

// How many splits a row has.
struct SeenSplits {
  template <class Args>
  DEVICE static uint32_t Of(const Args& args, uint32_t position) {
    return SplitsSeen(position, args.window);
  }
};
struct OfLatents {
  DEVICE static uint32_t Of(const AttendMergeArgs&, uint32_t position) { return LatentSplits(position); }
};
using AttendMerge = MergeSplits<SeenSplits, kMergeColumns>;

// The same of many rows: a wave has a head of a row, as far as that has no more splits than the wave has lanes.
// `Parts`: how many of these a row has, and what arguments say so.
template <class Parts>
struct MergeRows {
  using Args = typename Parts::Args;
  static constexpr uint32_t kLdsBytes = AttendMerge::kLdsBytes;
  static constexpr uint32_t kBatch = 8;  // chains whose parts a thread asks for at once

  DEVICE static void Run(const Args& given, uint32_t worker, uint32_t workers, Arena arena) {
    const AttendMergeArgs& args = Parts::Merge(given);
    const StepView step(args.step);
    const uint32_t rows = RowsHere(step, args.first_row, args.row_count), pairs = rows * args.heads;
    if (AreAllOfPrompt(step, args.run_rows, args.first_row, rows)) return;
    for (uint32_t first = worker * kWaves; first < pairs; first += workers * kWaves) {
      const uint32_t count = Min(pairs - first, kWaves);
      uint32_t most = 0;
      for (uint32_t i = 0; i < count; ++i) {
        most = Max(most, Parts::Of(given, step.position(args.first_row + (first + i) / args.heads)));
      }
      if (most <= kWave) {
        if (WaveId() < count && !IsElsewhere(given, first + WaveId())) OneWave(ReadArgumentsAgain<Args>(), first + WaveId());
        continue;
      }
      for (uint32_t i = 0; i < count; ++i) {
        if (!IsElsewhere(given, first + i)) ByAll(ReadArgumentsAgain<Args>(), first + i, arena);
      }
    }
  }

 private:
  DEVICE static bool IsElsewhere(const Args& given, uint32_t pair) {
    const AttendMergeArgs& args = Parts::Merge(given);
    const StepView step(args.step);
    const uint32_t rows = RowsHere(step, args.first_row, args.row_count);
    return IsOfPrompt(step, args.run_rows, args.first_row, rows, args.first_row + pair / args.heads);
  }
  DEVICE static void ByAll(const Args& given, uint32_t pair, Arena arena) {
    const AttendMergeArgs& args = Parts::Merge(given);
    const StepView step(args.step);
    const uint32_t r = pair / args.heads, row = args.first_row + r;
    const uint32_t splits = Parts::Of(given, step.position(row));
    if (splits <= 1) return;
    for (uint32_t d = 0; d < args.head_dim; d += 32) {
      AttendMerge::template OneSlice<32>(args, row, pair - r * args.heads, d / 32, splits, arena);
    }
  }
  // Lane s has what is to be known of split s, and so of chain s % 16: MergeSplits' sums in MergeSplits' order.
  DEVICE static void OneWave(const Args& given, uint32_t pair) {
    const AttendMergeArgs& args = Parts::Merge(given);
    const StepView step(args.step);
    const uint32_t r = pair / args.heads, row = args.first_row + r, head = pair - r * args.heads, hd = args.head_dim;
    const uint32_t splits = Parts::Of(given, step.position(row)), apart = AttendPartFloats(hd);
    if (splits <= 1) return;
    const Global<const float> parts = At(args.parts) + uint64_t{pair} * args.max_splits * apart;
    const bool has = LaneId() < splits;
    const Global<const float> own = parts + Min(LaneId(), splits - 1) * apart + hd;
    const float peak = has ? own[0] : -1e30f, sum = own[1];
    const float largest = ColumnMax(peak), share = has ? Exp(peak - largest) : 0.0f;
    const float total = ColumnSum(has ? sum * share : 0.0f);
    MergeChains::Merged all;
    all.largest = MaxRow16(largest);
    const float of_chain = Exp(largest - all.largest);
    for (uint32_t c = 0; c < kMergeChains; ++c) all.total = Fma(ReadLane(total, c), ReadLane(of_chain, c), all.total);
    for (uint32_t d = LaneId(); d - LaneId() < hd; d += kWave) {
      all.o = 0;
      const Global<const float> element = parts + Min(d, hd - 1);
      for (uint32_t first = 0; first < Min(splits, kMergeChains); first += kBatch) {
        float chains[kBatch] = {};
        for (uint32_t s = first; s < splits; s += kMergeChains) AddBatch(element, apart, s, splits, share, chains);
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kBatch; ++i) all.o = Fma(chains[i], ReadLane(of_chain, first + i), all.o);
      }
      if (d < hd) StoreMerged(args, row, head, head * hd + d, all);
    }
  }
  DEVICE static void AddBatch(Global<const float> element, uint32_t apart, uint32_t first, uint32_t splits, float share,
                              float (&chains)[kBatch]) {
    float values[kBatch];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kBatch; ++i) values[i] = element[Min(first + i, splits - 1) * apart];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kBatch; ++i) {
      const float by = first + i < splits ? ReadLane(share, first + i) : 0.0f;
      chains[i] = Fma(values[i], by, chains[i]);
    }
  }
};
struct PartsOfOneCache {
  using Args = AttendMergeArgs;
  DEVICE static const AttendMergeArgs& Merge(const Args& args) { return args; }
  DEVICE static uint32_t Of(const Args& args, uint32_t position) { return SplitsSeen(position, args.window); }
};
using AttendMergeRows = MergeRows<PartsOfOneCache>;
using AttendLatentMerge = MergeSplits<OfLatents, kMergeColumns>;

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_MERGE_H_
