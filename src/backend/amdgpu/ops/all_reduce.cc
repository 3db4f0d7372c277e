// SPDX-License-Identifier: MIT
//
// All-reduce: pushes, polls, adds in the tree, and makes the sums that the next norm wants. One
// rank has that work too: its product goes to the partial, and from there into x.
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {

kernels::ReduceArgs Lowering::ReduceOf(uint32_t width, bool alone) {
  kernels::ReduceArgs args;
  SetStep(&args);
  for (uint32_t r = 0; r < kernels::kMaxRanks; ++r) {
    args.exchange[r].address = memory.exchange[r];
  }
  args.exchange_own.address = memory.exchange[rank];
  args.flags_at = shape.exchange.flags_at;
  args.pairs_at = shape.exchange.pairs_at;
  args.pair_rows = shape.pair_rows;
  args.hidden = width;
  args.stride = shape.hidden_stride;
  args.chunks = CeilDivide(width, kernels::kRowChunk);
  args.max_rows = shape.options.max_rows;
  args.per_step = shape.all_reduces;
  // One of several ranks that asks nobody has no turn among the epochs either: they count those
  // for which all push.
  if (alone && program.ranks > 1) {
    args.ranks = 1;
  } else {
    args.ranks = static_cast<uint32_t>(program.ranks);
    args.rank = static_cast<uint32_t>(rank);
    args.sequence = reduces_++;
  }
  return args;
}

void Lowering::AddReduce(const kernels::ReduceArgs& args) {
  const bool twice = args.ranks > 1 && rows > kOneRoundRows;
  Launch& launch = Add(twice ? "reduce_twice" : "reduce", args, uint64_t{rows} * args.chunks, /*resident=*/args.ranks > 1);
  launch.together = args.ranks > 1;
}

bool Lowering::JoinReduce(const kernels::ReduceArgs& args) {
  const Pending::Reduced& reduced = pending.reduced;
  if (reduced.kernel.empty() || rows > kernels::kMatmulReduceRows || args.chunks > kernels::kReduceChunks) return false;
  const uint32_t workers = launches_.back().workers;
  Launch joined;
  uint64_t sums = 0;
  if (const auto* product = std::get_if<kernels::MatmulArgs>(&reduced.sums)) {
    sums = product->out.address;
    kernels::MatmulReduceArgs both = {*product, args};
    both.product.told = NextTold();
    joined = MakeLaunch(reduced.kernel, both, workers);
  } else {
    const auto& experts = std::get<kernels::ExpertsAnyArgs>(reduced.sums);
    sums = experts.experts.out.address;
    joined = MakeLaunch(reduced.kernel, kernels::ExpertsReduceArgs{experts, args, NextTold()}, workers);
  }
  if (args.partial.address != sums) return false;
  // Another kernel in the place of the last one: all else of the launch is as it was.
  Launch& launch = launches_.back();
  launch.kernel = joined.kernel;
  launch.args = joined.args;
  launch.op = op_;
  launch.together = args.ranks > 1;
  pending.reduced.kernel = {};
  return true;
}

void Lowering::ReduceInto(backend::BufferId x, bool whole, bool add) {
  kernels::ReduceArgs args = ReduceOf(static_cast<uint32_t>(program.hidden), whole);
  args.partial.address = pending.sums.at;
  args.splits = pending.sums.splits;
  args.split_rows = pending.sums.rows;
  if (KeepsRows(program, x)) {
    args.out = RowsOf(x);
    args.mode = add ? 0 : uint32_t{kernels::kReduceSet};
  } else {
    args.out.x.address = At(x);
    args.mode = kernels::kReducePlain;
  }
  if (!JoinReduce(args)) AddReduce(args);
}

void Lowering::ReducePartial(uint32_t width) {
  kernels::ReduceArgs args = ReduceOf(width, /*alone=*/false);
  args.partial.address = args.out.x.address = memory.partial;
  args.mode = kernels::kReducePlain;
  AddReduce(args);
}

void Emit(const backend::AllReduceAddOp& op, Lowering* to) {
  to->ReduceInto(op.x, /*whole=*/false, op.add);
}

Status CheckOp(const backend::Program& program, const backend::AllReduceAddOp& op,
               const backend::Op* before) {
  const backend::Buffer& x = program.buffers[static_cast<size_t>(op.x)];
  if (x.width != program.hidden || (op.add && !KeepsRows(program, op.x))) {
    return Error(Code::kUnsupported, "op all_reduce_add of \"", x.label,
                 "\": the GPU kernels add to x and to inputs, and make rows of the hidden size");
  }
  const auto* matmul = before == nullptr ? nullptr : std::get_if<backend::MatmulOp>(before);
  const auto* down = before == nullptr ? nullptr : std::get_if<backend::ExpertsDownOp>(before);
  if ((matmul != nullptr && matmul->partial == op.partial) ||
      (down != nullptr && down->out == op.partial)) {
    return OkStatus();
  }
  return Error(Code::kUnsupported, "op all_reduce_add of \"",
               program.buffers[static_cast<size_t>(op.partial)].label,
               "\": the GPU kernels take a product's sums right behind it");
}

}  // namespace mainarch::amdgpu
