// SPDX-License-Identifier: MIT
//
// A feed-forward's rows times the sigmoid of one number a row.
#include <algorithm>

#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {

void Emit(const backend::RowGateOp& op, Lowering* to) {
  kernels::RowGateArgs args;
  to->SetStep(&args);
  args.gate.address = to->At(op.gate);
  const auto* made = to->Before() == nullptr ? nullptr
                                             : std::get_if<backend::NormMatmulOp>(to->Before());
  if (made != nullptr && made->out == op.gate) {
    args.gate.address = to->pending.sums.at;
    args.splits = to->pending.sums.splits;
    args.split_rows = to->pending.sums.rows;
    args.norm = to->pending.sums.norm;
  }
  args.gate_stride = to->Stride(op.gate);
  args.act.address = to->At(op.act);
  args.stride = to->Stride(op.act);
  args.chunks = CeilDivide(args.stride, kernels::kRowChunk);
  to->Add("row_gate", args, uint64_t{to->rows} * args.chunks);
}

Status CheckOp(const backend::Program& program, const backend::RowGateOp& op, const backend::Op*) {
  const backend::Buffer& act = program.buffers[static_cast<size_t>(op.act)];
  const auto makes = [&](const backend::Op& any) {
    const auto* up = std::get_if<backend::NormGateUpOp>(&any);
    return up != nullptr && up->act == op.act;
  };
  const bool made = std::any_of(program.ops.begin(), program.ops.end(), makes);
  if (made && act.slots == 1 && !LiesSplit(program, op.gate)) return OkStatus();
  return Error(Code::kUnsupported, "op row_gate of \"", act.label,
               "\": the GPU kernels take what gate-up leaves");
}

}  // namespace mainarch::amdgpu
