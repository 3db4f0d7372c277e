// SPDX-License-Identifier: MIT
//
// All-reduce: pushes, polls, adds in the tree, and makes the sums that the next norm wants. One
// rank has that work too: its product goes to the partial, and from there into x.
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {

void Lowering::ReduceInto(backend::BufferId x, bool whole) {
  kernels::ReduceArgs args;
  SetStep(&args);
  args.partial.address = pending.sums.at;
  args.splits = pending.sums.splits;
  args.split_rows = pending.sums.rows;
  args.out = RowsOf(x);
  for (uint32_t r = 0; r < kernels::kMaxRanks; ++r) {
    args.exchange[r].address = memory.exchange[r];
  }
  args.exchange_own.address = memory.exchange[rank];
  args.flags_at = shape.exchange.flags_at;
  args.pairs_at = shape.exchange.pairs_at;
  args.pair_rows = shape.pair_rows;
  args.hidden = static_cast<uint32_t>(program.hidden);
  args.stride = shape.hidden_stride;
  args.chunks = shape.chunks;
  args.max_rows = shape.options.max_rows;
  args.per_step = shape.all_reduces;
  // One of several ranks that asks nobody has no turn among the epochs either: they count those
  // for which all push.
  if (whole && program.ranks > 1) {
    args.ranks = 1;
  } else {
    args.ranks = static_cast<uint32_t>(program.ranks);
    args.rank = static_cast<uint32_t>(rank);
    args.sequence = reduces_++;
  }
  const bool twice = args.ranks > 1 && rows > kOneRoundRows;
  Add(twice ? "reduce_twice" : "reduce", args, uint64_t{rows} * shape.chunks, /*resident=*/true);
}

void Emit(const backend::AllReduceAddOp& op, Lowering* to) { to->ReduceInto(op.x); }

}  // namespace mainarch::amdgpu
