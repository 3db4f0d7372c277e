// SPDX-License-Identifier: MIT
//
// AttendLongMerge where several ranks hold the KV head (long_args.h): of a row that they share each adds the chains that
// are of its splits, for the queries of all, and gets those of its own queries that it lacks. Other rows it
// merges alone. The same additions in the same order: the same bits as on one rank.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_SHARED_H_
#define MAINARCH_KERNELS_OPS_ATTEND_SHARED_H_

#include "kernels/ops/attend_long.h"

namespace mainarch::kernels {

struct AttendSharedMerge {
  using Args = AttendSharedMergeArgs;
  using Long = AttendLongMerge;
  static constexpr uint32_t kColumns = Long::kColumns, kChains = Long::kChains, kOwn = Long::kOwn;
  static constexpr uint32_t kPeaks = Long::kPeaks, kSumsAt = Long::kSumsAt, kScratchAt = Long::kScratchAt;
  static constexpr uint32_t kLdsBytes = Long::kLdsBytes;
  static_assert(kChains == kMergeChains);

  // Arguments are read again for each piece of work: in registers they would be in the way of all the rest.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.merge.step);
    const uint32_t rows = RowsHere(step, args.merge.first_row, args.merge.row_count);
    const uint32_t slices = args.merge.head_dim / kColumns, own = args.merge.heads * slices;
    const uint32_t others = (own << args.share.log_ranks) - own;
    // A workgroup tells all it has before it waits for anything but the scores of splits, which attention has told.
    for (uint32_t t = worker; t < rows * others; t += workers) {
      OfOthers(ReadArgumentsAgain<Args>(), step, t / others, t % others / slices, t % others % slices * kColumns, arena);
    }
    // From another workgroup on than above, which has less to do.
    for (uint32_t t = (worker + workers - rows * others % workers) % workers; t < rows * own; t += workers) {
      Own(ReadArgumentsAgain<Args>(), step, t / own, t % own / slices, t % own % slices * kColumns, arena);
    }
  }

  struct Sums {
    float o, largest, total;
  };
  // kColumns elements of a head: of all ranks' heads, or, of a row that is not shared, of this one's.
  struct Slice {
    uint32_t log, rank, row, head, heads, begin, splits, max_splits, epoch;
    bool mine;  // this thread's chain is of this rank's splits

    DEVICE Slice(const Args& args, const StepView& step, uint32_t of, uint32_t which, uint32_t column, bool shared)
        : log(shared ? args.share.log_ranks : 0),
          rank(shared ? args.share.rank : 0),
          row(of),
          head(which),
          heads(args.merge.heads << log),
          begin(column),
          splits(LongSplits(step.position(of))),
          max_splits(args.merge.max_splits << (args.share.log_ranks - log)),
          epoch(ShareEpoch(args.share, step)),
          mine(IsMine(ThreadId() / kColumns)) {}
    DEVICE bool IsMine(uint32_t split) const { return (split & ((1u << log) - 1)) == rank; }
    // Where rank `owner` is told this thread's chain and element of the head.
    DEVICE Global<uint64_t> Word(const Args& args, uint32_t owner) const {
      const uint32_t of_rank = head - owner * args.merge.heads, chain = ThreadId() / kColumns;
      const uint64_t at = (uint64_t{row} * args.merge.heads + of_rank) * kChains + chain;
      return ShareWords(args.share, owner, epoch,
                        args.share.chains_at + (at * args.merge.head_dim + begin + ThreadId() % kColumns) * 8);
    }
    // m and l of a split: what this rank has found, or what it was told.
    DEVICE f32x2 Peak(const Args& args, Global<const float> parts, uint32_t s) const {
      const uint32_t hd = args.merge.head_dim;
      if (IsMine(s)) return *reinterpret_cast<Global<const f32x2>>(parts + (s * AttendPartFloats(hd) + hd));
      const Global<const uint64_t> words =
          ShareWords(args.share, args.share.rank, epoch, args.share.peaks_at + PeakAt(args.share, row, s, heads, head) * 8);
      const float largest = AwaitWord(words, epoch);
      return f32x2{largest, AwaitWord(words + 1, epoch)};
    }
    // This thread's chain, where it is this rank's, and the largest score and the sum of the row's head.
    DEVICE Sums Chains(const Args& args, Arena arena) const {
      const uint32_t hd = args.merge.head_dim, column = AttendPartFloats(hd);
      const Global<const float> parts =
          At(args.merge.parts) + (uint64_t{row - args.merge.first_row} * heads + head) * max_splits * column;
      const uint32_t chain = ThreadId() / kColumns, in_slice = ThreadId() % kColumns;
      // A thread whose chain another rank has looks at what a neighbour does.
      const uint32_t near = (chain & ~((1u << log) - 1)) | rank;
      float values[kOwn];
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < kOwn; ++k) {
        const uint32_t s = near + k * kChains;
        values[k] = parts[(s < splits ? s : near) * column + begin + in_slice];
      }
      KeepOrder();
      f32x2 peaks[kPeaks];
      for (uint32_t i = 0; i < kPeaks; ++i) peaks[i] = Peak(args, parts, Min(ThreadId() + i * kThreads, splits - 1));
      const Lds<float> shares = arena.Get<float>(), scratch = arena.Get<float>(kScratchAt);
      float largest = -1e30f;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kPeaks; ++i) largest = __builtin_fmaxf(largest, float{peaks[i][0]});
      largest = GroupMax<kWaves>(largest, scratch);
      float total = 0;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kPeaks; ++i) {
        const uint32_t s = ThreadId() + i * kThreads;
        const float peak = peaks[i][0], sum = peaks[i][1];
        const float share = s < splits ? Exp(peak - largest) : 0.0f;
        if (s < splits) total = Fma(sum, share, total);
        shares[s] = share;
      }
      BarrierLds();
      float o = 0;
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < kOwn; ++k) {
        // What lies in the place of a split that another rank has, or nobody, is no number.
        const float value = mine && chain + k * kChains < splits ? values[k] : 0.0f;
        o = Fma(value, shares[chain + k * kChains], o);
      }
      return {o, largest, GroupSum<kWaves>(total, scratch)};
    }
  };

  // Of the `place`-th head that is another rank's.
  DEVICE static void OfOthers(const Args& args, const StepView& step, uint32_t place_of_row, uint32_t place,
                              uint32_t begin, Arena arena) {
    const uint32_t row = args.merge.first_row + place_of_row, heads = args.merge.heads;
    if (!IsShared(args.share, step.position(row))) return;
    const Slice slice(args, step, row, place + (place < args.share.rank * heads ? 0 : heads), begin, true);
    const float o = slice.Chains(args, arena).o;
    const Args again = ReadArgumentsAgain<Args>();
    if (slice.mine) TellWord(slice.Word(again, slice.head / again.merge.heads), slice.epoch, o);
    BarrierLds();
  }
  // Of this rank's own head `head`.
  DEVICE static void Own(const Args& args, const StepView& step, uint32_t place_of_row, uint32_t head, uint32_t begin,
                         Arena arena) {
    const uint32_t row = args.merge.first_row + place_of_row, position = step.position(row);
    if (LongSplits(position) <= 1) return;
    const bool shared = IsShared(args.share, position);
    const Slice slice(args, step, row, head + (shared ? args.share.rank * args.merge.heads : 0), begin, shared);
    Sums own = slice.Chains(args, arena);
    const Lds<float> sums = arena.Get<float>(kSumsAt);
    const Args again = ReadArgumentsAgain<Args>();
    sums[ThreadId()] = slice.mine ? own.o : AwaitWord(slice.Word(again, again.share.rank), slice.epoch);
    BarrierLds();
    if (ThreadId() < kColumns) {
      const uint32_t in_slice = ThreadId() % kColumns;
      float all = sums[in_slice];
#pragma clang loop unroll(full)
      for (uint32_t c = 1; c < kChains; ++c) all += sums[c * kColumns + in_slice];
      if (again.merge.sinks.address != 0) AddSink(At(again.merge.sinks)[head], own.largest, all, own.total);
      StoreGated(again.merge, row, head * again.merge.head_dim + begin + in_slice, all / own.total);
    }
    BarrierLds();
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_SHARED_H_
