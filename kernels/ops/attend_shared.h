// SPDX-License-Identifier: MIT
//
// AttendLongMerge where several ranks hold the KV head (long_args.h): of a row that they share each makes the chains that
// are of its splits, for the queries of all, and gets those of its own queries that it lacks. Other rows it
// merges alone. The same additions in the same order: the same bits as on one rank.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_SHARED_H_
#define MAINARCH_KERNELS_OPS_ATTEND_SHARED_H_

#include "kernels/ops/attend_long.h"
#include "kernels/ops/share.h"

namespace mainarch::kernels {

struct AttendSharedMerge {
  using Args = AttendSharedMergeArgs;
  using Long = AttendLongMerge;
  static constexpr uint32_t kColumns = Long::kColumns, kLdsBytes = Long::kLdsBytes;

  // Arguments are read again for each piece of work: in registers they would be in the way of all the rest.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.merge.step);
    const uint32_t rows = RowsHere(step, args.merge.first_row, args.merge.row_count);
    const uint32_t slices = args.merge.head_dim / kColumns, own = args.merge.heads * slices;
    const uint32_t others = (own << args.share.log_ranks) - own;
    // A workgroup tells all it has before it waits for anything.
    for (uint32_t t = worker; t < rows * others; t += workers) {
      OfOthers(step, t / others, t % others / slices, t % others % slices, arena);
    }
    // From another workgroup on than above, which has less to do.
    for (uint32_t t = (worker + workers - rows * others % workers) % workers; t < rows * own; t += workers) {
      Own(step, t / own, t % own / slices, t % own % slices, arena);
    }
  }

  // Where `owner` is told of this thread's chain; of a head of its own and kColumns elements of it.
  DEVICE static Global<uint64_t> Words(const Args& args, uint32_t epoch, uint32_t owner, uint32_t row, uint32_t head,
                                       uint32_t slice) {
    const uint32_t slices = args.merge.head_dim / kColumns, chain = ThreadId() / kColumns;
    const uint64_t at = ((uint64_t{row} * args.merge.heads + head) * slices + slice) * kMergeChains + chain;
    return ShareWords(args.share, owner, epoch, args.share.chains_at + at * kChainWords * 8);
  }
  // Of a row that is shared or not: a head among all that parts have.
  DEVICE static Global<const float> PartsOf(const Args& args, uint32_t place_of_row, uint32_t head, bool shared) {
    const uint32_t heads = args.merge.heads << (shared ? args.share.log_ranks : 0);
    const uint32_t splits = args.merge.max_splits >> (shared ? args.share.log_ranks : 0);
    return At(args.merge.parts) +
           (uint64_t{place_of_row} * heads + head) * splits * AttendPartFloats(args.merge.head_dim);
  }
  DEVICE static bool Mine(const AttendShare& share) {
    return (ThreadId() / kColumns & ((1u << share.log_ranks) - 1)) == share.rank;
  }

  // The `place`-th of the heads that are other ranks'.
  DEVICE static void OfOthers(const StepView& step, uint32_t place_of_row, uint32_t place, uint32_t slice, Arena arena) {
    const Args args = ReadArgumentsAgain<Args>();
    const uint32_t row = args.merge.first_row + place_of_row, heads = args.merge.heads;
    const uint32_t position = step.position(row), head = place + (place < args.share.rank * heads ? 0 : heads);
    if (!IsShared(args.share, position)) return;
    const float o = Long::Chains(PartsOf(args, place_of_row, head, true), args.merge.head_dim, slice * kColumns,
                                 LongSplits(position), args.share.log_ranks, args.share.rank, arena);
    BarrierLds();
    const Args again = ReadArgumentsAgain<Args>();
    if (Mine(again.share)) {
      const MergeChains chains(arena, Long::kChainsAt);
      const uint32_t epoch = ShareEpoch(again.share, step), owner = head / heads;
      const uint32_t column = ThreadId() % kColumns, chain = ThreadId() / kColumns;
      const Global<uint64_t> words = Words(again, epoch, owner, row, head - owner * heads, slice);
      TellWord(words + column, epoch, o);
      if (column == 0) TellWord(words + kColumns, epoch, chains.peaks[chain]);
      if (column == 1) TellWord(words + kColumns + 1, epoch, chains.totals[chain]);
    }
    BarrierLds();
  }

  // This rank's head `head`.
  DEVICE static void Own(const StepView& step, uint32_t place_of_row, uint32_t head, uint32_t slice, Arena arena) {
    const Args args = ReadArgumentsAgain<Args>();
    const uint32_t row = args.merge.first_row + place_of_row, position = step.position(row);
    if (LongSplits(position) <= 1) return;
    const bool shared = IsShared(args.share, position);
    const uint32_t among = head + (shared ? args.share.rank * args.merge.heads : 0);
    Long::Chains(PartsOf(args, place_of_row, among, shared), args.merge.head_dim, slice * kColumns, LongSplits(position),
                 shared ? args.share.log_ranks : 0, shared ? args.share.rank : 0, arena);
    BarrierLds();
    const Args again = ReadArgumentsAgain<Args>();
    const MergeChains chains(arena, Long::kChainsAt);
    const Lds<float> sums = arena.Get<float>(Long::kSumsAt);
    const uint32_t column = ThreadId() % kColumns, chain = ThreadId() / kColumns;
    if (shared && !Mine(again.share)) {
      const uint32_t epoch = ShareEpoch(again.share, step);
      const Global<const uint64_t> words = Words(again, epoch, again.share.rank, row, head, slice);
      sums[ThreadId()] = AwaitWord(words + column, epoch);
      if (column == 0) chains.peaks[chain] = AwaitWord(words + kColumns, epoch);
      if (column == 1) chains.totals[chain] = AwaitWord(words + kColumns + 1, epoch);
    }
    BarrierLds();
    if (ThreadId() < kColumns) {
      StoreMerged(again.merge, row, head, head * again.merge.head_dim + slice * kColumns + ThreadId(),
                  chains.Together(sums + ThreadId(), kColumns));
    }
    BarrierLds();
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_SHARED_H_
