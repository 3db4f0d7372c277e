// SPDX-License-Identifier: MIT
//
// A buffer's rows added to x, or put in its place: a norm behind a block, a factor of what it adds; and
// biases of any.
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// Whether it is this op that leaves y as a product's sums (Lowering::GoesToSum).
bool LeavesSums(const backend::Op* op, backend::BufferId y) {
  const auto* matmul = op == nullptr ? nullptr : std::get_if<backend::MatmulOp>(op);
  return matmul != nullptr && matmul->partial == y;
}

// Rows that nothing but a product takes, of any width.
void EmitNormSplit(const backend::AddNormedOp& op, Lowering* to) {
  const int64_t width = to->program.buffers[static_cast<size_t>(op.y)].width;
  kernels::NormSplitArgs args;
  to->SetStep(&args);
  args.y.address = to->At(op.y);
  args.norm.address = to->WeightOf(op.norm).vector;
  args.out.address = to->At(op.x);
  args.width = static_cast<uint32_t>(width);
  args.stride = to->Stride(op.y);
  args.inverse_width = 1.0f / static_cast<float>(width);
  args.epsilon = op.epsilon > 0 ? op.epsilon : to->program.rms_eps;
  to->Add("norm_split", args, to->rows);
}

// What goes in is whole, and split rows are the only form of what comes out.
Status CheckNormSplit(const backend::Program& program, const backend::AddNormedOp& op) {
  const backend::Buffer& y = program.buffers[static_cast<size_t>(op.y)];
  if (LiesSplit(program, op.y) || y.slots != 1 || y.width % 2 != 0) {
    return Error(Code::kUnsupported, "op add_normed of \"", y.label, "\", ", y.width,
                 " wide: the GPU kernels norm fp32 rows of an even width for a product");
  }
  for (const backend::Op& any : program.ops) {
    if (!LeavesSums(&any, op.y)) continue;
    return Error(Code::kUnsupported, "op add_normed of \"", y.label,
                 "\": the GPU kernels norm no product's sums for another product");
  }
  return OkStatus();
}

}  // namespace

bool LeavesSplit(const backend::Program& program, const backend::AddNormedOp& op) {
  if (op.add || op.norm == backend::kNone || op.scale != 1 || KeepsRows(program, op.x)) return false;
  return TakerOf(program, op.x) != nullptr;
}

void Emit(const backend::AddNormedOp& op, Lowering* to) {
  if (LeavesSplit(to->program, op)) return EmitNormSplit(op, to);
  kernels::AddNormedArgs args;
  to->SetStep(&args);
  args.y.address = to->At(op.y);
  if (LeavesSums(to->Before(), op.y)) {
    args.y.address = to->pending.sums.at;
    args.splits = to->pending.sums.splits;
    args.split_rows = to->pending.sums.rows;
  }
  if (op.norm != backend::kNone) args.norm.address = to->WeightOf(op.norm).vector;
  args.out = to->RowsOf(op.x);
  args.hidden = static_cast<uint32_t>(to->program.hidden);
  args.stride = to->shape.hidden_stride;
  args.chunks = to->shape.chunks;
  args.add = op.add;
  args.scale = op.scale;
  args.inverse_hidden = 1.0f / static_cast<float>(to->program.hidden);
  args.epsilon = op.epsilon > 0 ? op.epsilon : to->program.rms_eps;
  to->Add("add_normed", args, uint64_t{to->rows} * to->shape.chunks);
}

// Of what ranks add up once, not once a rank: behind the sum, which all of them have.
void Emit(const backend::AddBiasOp& op, Lowering* to) {
  const auto width = static_cast<uint32_t>(to->program.buffers[static_cast<size_t>(op.x)].width);
  kernels::AddNormedArgs args;
  to->SetStep(&args);
  args.y.address = to->WeightOf(op.bias).vector;
  args.one_row = 1;
  args.out.x.address = to->At(op.x);
  if (KeepsRows(to->program, op.x)) args.out = to->RowsOf(op.x);
  args.hidden = width;
  args.stride = to->Stride(op.x);
  args.chunks = CeilDivide(width, kernels::kRowChunk);
  args.add = 1;
  to->Add("add_normed", args, uint64_t{to->rows} * args.chunks);
}

Status CheckOp(const backend::Program& program, const backend::AddBiasOp& op, const backend::Op*) {
  if (KeepsRows(program, op.x)) return OkStatus();
  const backend::Buffer& x = program.buffers[static_cast<size_t>(op.x)];
  if (LiesSplit(program, op.x) || x.type != backend::BufferType::kF32 || x.slots != 1 ||
      x.width % 2 != 0) {
    return Error(Code::kUnsupported, "op add_bias of \"", x.label, "\", ", x.slots, " of ", x.width,
                 " a row: the GPU kernels add to fp32 rows of an even width");
  }
  return OkStatus();
}

Status CheckOp(const backend::Program& program, const backend::AddNormedOp& op,
               const backend::Op*) {
  const backend::Buffer& y = program.buffers[static_cast<size_t>(op.y)];
  if (LeavesSplit(program, op)) return CheckNormSplit(program, op);
  if (LiesSplit(program, op.y) || y.slots != 1 || y.width != program.hidden) {
    return Error(Code::kUnsupported, "op add_normed of \"", y.label,
                 "\": the GPU kernels add fp32 rows of the hidden size, ", program.hidden);
  }
  return OkStatus();
}

}  // namespace mainarch::amdgpu
