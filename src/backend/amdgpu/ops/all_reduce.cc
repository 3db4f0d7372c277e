// SPDX-License-Identifier: MIT
//
// All-reduce: pushes, polls, adds in the tree, and makes the sums that the next norm wants. One
// rank has that work too: its product goes to the partial, and from there into x.
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {

void Lowering::ReduceInto(backend::BufferId x, bool whole) {
  kernels::ReduceArgs args;
  SetStep(&args);
  args.partial.address = memory.partial;
  args.x.address = At(x);
  args.squares.address = SquaresOf(x);
  for (uint32_t r = 0; r < kernels::kMaxRanks; ++r) {
    args.slots[r].address = memory.slots[r];
    args.flags[r].address = memory.flags[r];
  }
  args.hidden = static_cast<uint32_t>(program.hidden);
  args.stride = shape.hidden_stride;
  args.chunks = shape.chunks;
  args.max_rows = shape.options.max_rows;
  args.two_shot_rows = kTwoShotRows;
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
  Add("reduce", args, uint64_t{rows} * shape.chunks, /*resident=*/true);
}

void Emit(const backend::AllReduceAddOp& op, Lowering* to) { to->ReduceInto(op.x); }

}  // namespace mainarch::amdgpu
