// SPDX-License-Identifier: MIT
//
// Attention with two caches (near_args.h), but for the far tokens, which are attend_long.h's: the append to the near
// cache, attention to it, and the merge of all parts.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_NEAR_H_
#define MAINARCH_KERNELS_OPS_ATTEND_NEAR_H_

#include "kernels/near_args.h"
#include "kernels/ops/attend_long.h"
#include "kernels/ops/prepare.h"

namespace mainarch::kernels {

// K and V of every row once more, as fp8; `kTurns`: K as the far cache has it, so that the same queries ask for both.
template <class Prepare>
struct PrepareNearAs {
  using Args = PrepareArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t heads = 2 * args.kv_heads, total = step.rows() * heads;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      const Args again = ReadArgumentsAgain<Args>();
      Prepare::OneHead(again, step, t / heads, again.heads + t % heads);
    }
  }
};

template <uint32_t kHeadDim, bool kTurns>
using PrepareNear = PrepareNearAs<Prepare<KvFormat::kFp8, kHeadDim, kTurns>>;
template <uint32_t kKeyDim, uint32_t kValueDim, bool kTurns>
using PrepareNearUnequal = PrepareNearAs<PrepareUnequal<KvFormat::kFp8, kKeyDim, kValueDim, kTurns>>;

template <uint32_t kHeadDim, uint32_t kValueDim = kHeadDim>
struct AttendNear {
  using Args = AttendArgs;
  using Block = Attend<KvFormat::kFp8, kHeadDim, kValueDim, false>;
  static constexpr uint32_t kLdsBytes = Block::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t places = MostSplits(args.window) + 1;  // splits of the window, and the kept tokens
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * args.kv_heads * places;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t unit = t / places;
      OnePart(args, step, args.first_row + unit / args.kv_heads, unit % args.kv_heads, t % places, arena);
    }
  }

  DEVICE static void OnePart(const Args& args, const StepView& step, uint32_t row, uint32_t head, uint32_t place,
                             Arena arena) {
    const StepView::Place at = step.place(row);
    const NearTokens near = {args.window, args.kept};
    const uint32_t position = at.position, splits = SplitsSeen(position, near.window);
    const bool kept = place == MostSplits(near.window);
    const uint32_t kept_seen = KeptSeen(position, near);
    if (kept ? kept_seen == 0 : place >= splits) return;
    const uint32_t first = kept ? 0 : FirstSeen(position, near.window), last = kept ? kept_seen - 1 : position;
    const uint32_t token = (first / kSplitTokens + (kept ? 0 : place)) * kSplitTokens + WaveId() * 32;
    Running<kValueDim> run;
    if (token <= last && token + 32 > first) Block::OneGroup(args, step, at, row, head, token, first, last, run);
    const uint32_t part = FarSplits(position, near) + (kept ? splits : place);
    Block::Finish(args, {row, head, part, NearParts(position, near), args.group, {}}, run, arena);
  }
};

struct AttendNearMerge {
  using Args = AttendNearMergeArgs;
  using Long = AttendLongMerge;
  static constexpr uint32_t kColumns = Long::kColumns, kLdsBytes = Long::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const AttendMergeArgs& merge = args.merge;
    const StepView step(merge.step);
    const uint32_t slices = merge.head_dim / kColumns, units = merge.heads * slices;
    const uint32_t total = RowsHere(step, merge.first_row, merge.row_count) * units;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = merge.first_row + t / units, unit = t % units;
      const uint32_t parts = NearParts(step.position(row), {merge.window, args.kept});
      if (parts > 1) Long::OneSlice(merge, row, unit / slices, unit % slices * kColumns, parts, arena);
    }
  }
};

// The same of many rows.
struct PartsOfNear {
  using Args = AttendNearMergeArgs;
  DEVICE static const AttendMergeArgs& Merge(const Args& args) { return args.merge; }
  DEVICE static uint32_t Of(const Args& args, uint32_t position) { return NearParts(position, {args.merge.window, args.kept}); }
};
using AttendNearMergeRows = MergeRows<PartsOfNear>;

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_NEAR_H_
