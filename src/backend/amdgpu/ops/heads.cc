// SPDX-License-Identifier: MIT
//
// Heads on both sides of attention: norms of Q and K over the heads of all ranks, and heads of other sizes than
// attention has, widened with zeros before it and cut behind it.
#include <algorithm>

#include "backend/amdgpu/lowering.h"
#include "kernels/heads_args.h"

namespace mainarch::amdgpu {
namespace {

void EmitWiden(const backend::ResizeHeadsOp& op, Lowering* to) {
  kernels::WidenHeadsArgs args;
  to->SetStep(&args);
  to->TakeHeads(op.in, &args);
  args.out.address = to->At(op.out);
  if (op.q_norm != backend::kNone) args.q_norm.address = to->WeightOf(op.q_norm).vector;
  if (op.k_norm != backend::kNone) args.k_norm.address = to->WeightOf(op.k_norm).vector;
  args.in_stride = to->Stride(op.in);
  args.out_stride = to->Stride(op.out);
  args.from = static_cast<uint32_t>(op.from);
  args.to = static_cast<uint32_t>(op.to);
  args.heads = static_cast<uint32_t>(op.heads);
  args.kv_heads = static_cast<uint32_t>(op.kv_heads);
  args.value_from = op.value_from > 0 ? static_cast<uint32_t>(op.value_from) : args.from;
  args.value_to = op.value_from > 0 ? static_cast<uint32_t>(op.value_to) : args.to;
  const uint32_t keys = args.heads + args.kv_heads;
  const auto width = static_cast<uint32_t>(to->program.buffers[static_cast<size_t>(op.in)].width);
  args.count = keys + (width - keys * args.from) / args.value_from;
  args.inverse_from = 1.0f / static_cast<float>(op.from);
  args.epsilon = to->program.rms_eps;
  to->Add("widen_heads", args, CeilDivide(uint64_t{to->rows} * args.count, kernels::kWaves));
}

void EmitNarrow(const backend::ResizeHeadsOp& op, Lowering* to) {
  const backend::Weight& taker = *TakerOf(to->program, op.out);
  kernels::NarrowHeadsArgs args;
  to->SetStep(&args);
  args.in.address = to->At(op.in);
  args.out.address = to->At(op.out);
  const std::vector<uint32_t> ends = PartEnds(taker, to->rank);
  args.parts = static_cast<uint32_t>(ends.size());
  const auto begin = taker.splits.begin() + to->rank * static_cast<ptrdiff_t>(args.parts);
  for (uint32_t i = 0; i < args.parts; ++i) {
    const auto heads = static_cast<uint32_t>((begin[i + 1] - begin[0]) / op.to);
    kernels::PackEnd(&args.low_ends, &args.high_ends, i, ends[i]);
    kernels::PackEnd(&args.low_heads, &args.high_heads, i, heads);
  }
  args.in_stride = to->Stride(op.in);
  args.out_stride = to->Stride(op.out);
  args.from = static_cast<uint32_t>(op.from);
  args.to = static_cast<uint32_t>(op.to);
  args.chunks = CeilDivide(ends.back(), kernels::kNarrowSteps);
  to->Add("narrow_heads", args, uint64_t{to->rows} * args.chunks);
}

}  // namespace

void Emit(const backend::WideNormOp& op, Lowering* to) {
  kernels::HeadSquaresArgs squares;
  to->SetStep(&squares);
  to->TakeHeads(op.qkv, &squares);
  squares.qkv.address = to->At(op.qkv);
  squares.squares.address = to->memory.partial;
  squares.stride = to->Stride(op.qkv);
  squares.squares_stride = to->shape.hidden_stride;
  squares.heads = static_cast<uint32_t>(op.heads);
  squares.kv_heads = static_cast<uint32_t>(op.kv_heads);
  squares.head_dim = static_cast<uint32_t>(op.key_dim);
  squares.first_head = static_cast<uint32_t>(op.heads * to->rank);
  // Of fewer K heads than ranks the first rank that has one counts it.
  const int32_t ranks = to->program.ranks, first_kv = op.total_kv_heads * to->rank / ranks;
  squares.first_kv = static_cast<uint32_t>(first_kv);
  squares.kv_counts = first_kv * ranks / op.total_kv_heads == to->rank;
  squares.total_heads = static_cast<uint32_t>(op.heads * ranks);
  squares.total_kv_heads = static_cast<uint32_t>(op.total_kv_heads);
  const uint32_t places = HeadsOfAll(to->program, op);
  to->Add("head_squares", squares,
          CeilDivide(uint64_t{to->rows} * (places + 1 + squares.kv_heads), kernels::kWaves));
  if (ranks > 1) to->ReducePartial(places);

  kernels::WideNormArgs norm;
  to->SetStep(&norm);
  norm.qkv = squares.qkv;
  norm.squares.address = squares.squares.address;
  norm.q_norm.address = to->WeightOf(op.q_norm).vector;
  norm.k_norm.address = to->WeightOf(op.k_norm).vector;
  norm.stride = squares.stride;
  norm.squares_stride = squares.squares_stride;
  norm.heads = squares.heads;
  norm.kv_heads = squares.kv_heads;
  norm.head_dim = squares.head_dim;
  norm.total_heads = squares.total_heads;
  norm.total_kv_heads = squares.total_kv_heads;
  norm.epsilon = to->program.rms_eps;
  norm.inverse_q = 1.0f / static_cast<float>(norm.total_heads * norm.head_dim);
  norm.inverse_k = 1.0f / static_cast<float>(norm.total_kv_heads * norm.head_dim);
  to->Add("wide_norm", norm,
          CeilDivide(uint64_t{to->rows} * (norm.heads + norm.kv_heads), kernels::kWaves));
}

void Emit(const backend::ResizeHeadsOp& op, Lowering* to) {
  LiesSplit(to->program, op.in) ? EmitNarrow(op, to) : EmitWiden(op, to);
}

Status CheckOp(const backend::Program& program, const backend::WideNormOp& op, const backend::Op*) {
  const auto heads = static_cast<int64_t>(HeadsOfAll(program, op));
  if (LiesSplit(program, op.qkv)) {
    return Error(Code::kUnsupported, "op wide_norm of \"", program.buffers[static_cast<size_t>(op.qkv)].label,
                 "\": the GPU kernels norm fp32 rows");
  }
  if (program.buffers[static_cast<size_t>(op.qkv)].width != int64_t{op.heads + 2 * op.kv_heads} * op.key_dim) {
    return Error(Code::kUnsupported, "op wide_norm beside values of another size than keys: the GPU kernels have none");
  }
  // Their sums of squares travel as a row of x does.
  if (heads <= program.hidden) return OkStatus();
  return Error(Code::kUnsupported, "op wide_norm of ", heads,
               " heads: the GPU kernels take as many as the hidden size, ", program.hidden);
}

// Attention's output is narrowed, right before its product; what is made of x is widened.
Status CheckOp(const backend::Program& program, const backend::ResizeHeadsOp& op, const backend::Op*) {
  const std::string& label = program.buffers[static_cast<size_t>(op.in)].label;
  if (op.from % 8 != 0 || op.to % 8 != 0 || op.value_from % 8 != 0 || op.value_to % 8 != 0) {
    return Error(Code::kUnsupported, "op resize_heads of \"", label, "\", heads of ", op.from, " to ", op.to,
                 ": the GPU kernels take multiples of 8");
  }
  if (!LiesSplit(program, op.in)) {
    constexpr int32_t kMost = 256;
    if (op.from <= op.to && op.to <= kMost && op.value_from <= op.value_to && op.value_to <= kMost) return OkStatus();
    return Error(Code::kUnsupported, "op resize_heads of \"", label, "\", heads of ", op.from, " to ", op.to,
                 ": the GPU kernels widen what products leave, up to ", kMost);
  }
  const backend::Weight* taker = TakerOf(program, op.out);
  if (op.to > op.from || op.value_from != 0 || op.q_norm != backend::kNone || op.k_norm != backend::kNone || taker == nullptr ||
      taker->splits.empty()) {
    return Error(Code::kUnsupported, "op resize_heads of \"", label, "\", heads of ", op.from, " to ", op.to,
                 ": the GPU kernels cut what attention leaves, for a product by parts");
  }
  return OkStatus();
}

}  // namespace mainarch::amdgpu
