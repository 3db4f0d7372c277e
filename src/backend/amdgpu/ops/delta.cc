// SPDX-License-Identifier: MIT
//
// A gated delta net: one launch, a workgroup a sequence and value head; of heads with more columns than
// a workgroup holds several, and a second launch for the norm over all of them.
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {

void Emit(const backend::GatedDeltaOp& op, Lowering* to) {
  kernels::DeltaArgs args;
  to->SetStep(&args);
  const uint32_t groups = DeltaGroups(op);
  args.in.address = to->At(op.in);
  args.gates.address = to->At(op.gates);
  if (to->pending.gates.at != 0) {
    args.gates.address = to->pending.gates.at;
    args.gates_splits = to->pending.gates.splits;
    args.gates_split_rows = to->pending.gates.rows;
    args.gates_norm = to->pending.gates.norm;
  }
  to->pending.gates = {};
  args.out.address = to->At(op.out);
  if (groups > 1) args.plain.address = to->memory.plain;
  args.slots.address = to->SlotsAt(op.cache, op.layer);
  args.slot_bytes = to->SlotsOf(op.cache).slot_bytes;
  args.states = static_cast<uint32_t>(to->SlotsOf(op.cache).list);
  args.conv.address = to->WeightOf(op.conv).vector;
  args.decay.address = to->WeightOf(op.decay).vector;
  args.dt_bias.address = to->WeightOf(op.dt_bias).vector;
  args.norm.address = to->WeightOf(op.norm).vector;
  args.in_stride = to->Stride(op.in);
  args.gates_stride = to->Stride(op.gates);
  args.out_stride = to->Stride(op.out);
  args.key_heads = static_cast<uint32_t>(op.key_heads);
  args.value_heads = static_cast<uint32_t>(op.value_heads);
  args.key_dim = static_cast<uint32_t>(op.key_dim);
  args.value_dim = static_cast<uint32_t>(op.value_dim);
  args.taps = static_cast<uint32_t>(op.taps);
  args.columns = kernels::DeltaColumns(args.key_dim);
  args.epsilon = to->program.rms_eps;
  // As many sequences as a step may have rows; those that are not there cost nothing but a look.
  const uint64_t sequences = std::min(to->rows, to->shape.options.max_sequences);
  to->Add(args.key_dim > 128 ? "gated_delta_wide" : "gated_delta", args,
          sequences * args.value_heads * groups);
  if (groups == 1) return;
  to->Add("gated_delta_norm", args,
          CeilDivide(uint64_t{to->rows} * args.value_heads, kernels::kWaves));
}

Status CheckOp(const backend::Program&, const backend::GatedDeltaOp& op, const backend::Op*) {
  constexpr int32_t kMostDim = kernels::kDeltaMostDim;
  static_assert(kernels::kDeltaMostTaps == backend::kMostTaps);
  if (op.key_dim <= kMostDim && op.value_dim <= kMostDim) return OkStatus();
  return Error(Code::kUnsupported, "a gated delta net with heads of ", op.key_dim, " and ",
               op.value_dim, ": the GPU kernels take up to ", kMostDim);
}

}  // namespace mainarch::amdgpu
