// SPDX-License-Identifier: MIT
//
// Rows kept for another context's steps, or this one's next, and taken there. A tap lies twice, and a
// step writes the half of its parity; which one a reader's step means the host says
// (AmdGpuContext::CheckInputs).
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

Status CheckRows(const backend::Program& program, backend::BufferId id) {
  const backend::Buffer& buffer = program.buffers[static_cast<size_t>(id)];
  if (buffer.type == backend::BufferType::kF32 && buffer.slots == 1 &&
      buffer.width == program.hidden) {
    return OkStatus();
  }
  return Error(Code::kUnsupported, "a tap or an input of \"", buffer.label, "\", ", buffer.slots,
               " of ", buffer.width, " a row: the GPU kernels take fp32 rows of the hidden size, ",
               program.hidden);
}

}  // namespace

void Emit(const backend::TapOp& op, Lowering* to) {
  kernels::TapArgs args;
  to->SetStep(&args);
  args.x.address = to->At(op.x);
  args.out.address = to->At(op.out);
  args.hidden = static_cast<uint32_t>(to->program.hidden);
  args.stride = to->shape.hidden_stride;
  args.chunks = to->shape.chunks;
  args.max_rows = to->shape.options.max_rows;
  to->Add("tap", args, uint64_t{to->rows} * to->shape.chunks);
}

void Emit(const backend::InputOp& op, Lowering* to) {
  kernels::InputArgs args;
  to->SetStep(&args);
  args.tap.address = to->memory.source_taps[static_cast<size_t>(op.tap)];
  args.out = to->RowsOf(op.x);
  args.hidden = static_cast<uint32_t>(to->program.hidden);
  args.stride = to->shape.hidden_stride;
  args.chunks = to->shape.chunks;
  if (op.own != backend::kNone) {
    args.own.address = to->At(to->program.taps[static_cast<size_t>(op.own)]);
  }
  if (op.cache != backend::kNone) {
    args.slots.address = to->SlotsAt(op.cache, op.layer);
    args.slot_bytes = to->SlotsOf(op.cache).slot_bytes;
    args.states = static_cast<uint32_t>(to->SlotsOf(op.cache).list);
  }
  to->Add("input", args, uint64_t{to->rows} * to->shape.chunks);
}

Status CheckOp(const backend::Program& program, const backend::TapOp& op, const backend::Op*) {
  RETURN_IF_ERROR(CheckRows(program, op.x));
  return CheckRows(program, op.out);
}

Status CheckOp(const backend::Program& program, const backend::InputOp& op, const backend::Op*) {
  return CheckRows(program, op.x);
}

}  // namespace mainarch::amdgpu
