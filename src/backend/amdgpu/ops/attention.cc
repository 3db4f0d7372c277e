// SPDX-License-Identifier: MIT
//
// Attention over paged KV: heads are made (with their product, or after it), then splits of the
// context are attended to, then merged.
#include <algorithm>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

void EmitPrepare(const backend::AttentionOp& op, const backend::PagedCache& cache, Lowering* to) {
  kernels::PrepareArgs args;
  to->SetStep(&args);
  to->TakeHeads(op.qkv, &args);
  args.qkv.address = to->At(op.qkv);
  const auto vector = [to](backend::WeightId id) {
    return id == backend::kNone ? 0 : to->WeightOf(id).vector;
  };
  args.q_norm.address = vector(op.q_norm);
  args.k_norm.address = vector(op.k_norm);
  args.bias.address = vector(op.bias);
  args.kv.address = to->PagesAt(op.cache, op.layer);
  args.tables_at = to->TablesAt(op.cache);
  args.stride = to->Stride(op.qkv);
  args.heads = static_cast<uint32_t>(op.heads);
  args.kv_heads = static_cast<uint32_t>(cache.kv_heads);
  if (op.rope != backend::kNone) {
    const size_t rope = static_cast<size_t>(op.rope);
    args.cosine.address = to->memory.cosine[rope];
    args.sine.address = to->memory.sine[rope];
    args.rotary = static_cast<uint32_t>(to->program.ropes[rope].rotary_dim);
  }
  args.epsilon = to->program.rms_eps;
  const uint64_t heads = args.heads + 2 * args.kv_heads;
  to->Add(PrepareKernel(to->shape.kv, cache.key_dim), args,
          CeilDivide(to->rows * heads, kernels::kWaves));
}

void EmitAttend(const backend::AttentionOp& op, const backend::PagedCache& cache, uint32_t first,
                Lowering* to) {
  kernels::AttendArgs args;
  to->SetStep(&args);
  args.qkv.address = to->At(op.qkv);
  args.kv.address = to->PagesAt(op.cache, op.layer);
  args.tables_at = to->TablesAt(op.cache);
  args.out.address = to->At(op.out);
  args.parts.address = to->memory.attend_parts;
  args.q_stride = to->Stride(op.qkv);
  args.out_stride = to->Stride(op.out);
  args.heads = static_cast<uint32_t>(op.heads);
  args.kv_heads = static_cast<uint32_t>(cache.kv_heads);
  args.window = static_cast<uint32_t>(cache.window);
  args.max_splits = MostSplitsOf(cache, to->shape.max_splits);
  const bool is_long = IsLong(cache, to->shape.max_splits);
  if (op.sinks != backend::kNone) args.sinks.address = to->WeightOf(op.sinks).vector;
  args.scale = static_cast<float>(op.scale);
  args.first_row = first;
  args.row_count = std::min(to->shape.attend_rows, to->rows);
  if (op.gate != backend::kNone) {
    args.gate.address = to->At(op.gate);
    args.gate_stride = to->Stride(op.gate);
  }
  const auto kernel = is_long ? AttendLongKernel : AttendKernel;
  to->Add(kernel(to->shape.kv, cache.key_dim), args,
          uint64_t{args.row_count} * args.kv_heads * args.max_splits);
  if (args.max_splits == 1) return;
  kernels::AttendMergeArgs merge;
  to->SetStep(&merge);
  merge.parts = {args.parts.address};
  merge.out = args.out;
  merge.gate = args.gate;
  merge.sinks = args.sinks;
  merge.window = args.window;
  merge.gate_stride = args.gate_stride;
  merge.out_stride = args.out_stride;
  merge.heads = args.heads;
  merge.max_splits = args.max_splits;
  merge.head_dim = static_cast<uint32_t>(cache.key_dim);
  merge.first_row = first;
  merge.row_count = args.row_count;
  const uint32_t columns = is_long ? kernels::kLongMergeColumns : kernels::kMergeColumns;
  to->Add(is_long ? "attend_long_merge" : "attend_merge", merge,
          uint64_t{args.row_count} * args.heads * CeilDivide(merge.head_dim, columns));
}

}  // namespace

void Emit(const backend::AttentionOp& op, Lowering* to) {
  if (LatentOf(to->program, op.cache) != nullptr) return EmitAttendLatent(op, to);
  const backend::PagedCache& cache = backend::CacheOf(to->program, op);
  EmitPrepare(op, cache, to);
  for (uint32_t first = 0; first < to->rows; first += to->shape.attend_rows) {
    EmitAttend(op, cache, first, to);
  }
}

namespace {

// Of attention to latents what queries and keys are made of is the op's before.
Status CheckToLatents(const backend::Program& program, const backend::AttentionOp& op, const backend::Op* before) {
  const auto* latent = before == nullptr ? nullptr : std::get_if<backend::LatentOp>(before);
  const bool plain = op.q_norm == backend::kNone && op.k_norm == backend::kNone && op.bias == backend::kNone &&
                     op.rope == backend::kNone && op.sinks == backend::kNone && op.gate == backend::kNone;
  if (latent != nullptr && latent->qkv == op.qkv && plain) return OkStatus();
  return Error(Code::kUnsupported, "attention to latents of cache \"", backend::CacheOf(program, op).label,
               plain ? "\" that no op makes right before it" : "\" with norms, biases, RoPE, sinks or a gate of its own",
               ": the GPU kernels have none");
}

}  // namespace

Status CheckOp(const backend::Program& program, const backend::AttentionOp& op,
               const backend::Op* before) {
  const backend::PagedCache& cache = backend::CacheOf(program, op);
  if (LatentOf(program, op.cache) != nullptr) return CheckToLatents(program, op, before);
  if ((op.q_norm == backend::kNone) != (op.k_norm == backend::kNone)) {
    return Error(Code::kUnsupported,
                 "attention with a norm of Q or K alone: the GPU kernels apply both or none");
  }
  if (op.gate != backend::kNone && LiesSplit(program, op.gate)) {
    return Error(Code::kUnsupported, "attention with a gate of \"",
                 program.buffers[static_cast<size_t>(op.gate)].label,
                 "\": the GPU kernels take what a product leaves");
  }
  const int32_t group = op.heads / cache.kv_heads;
  if (group > static_cast<int32_t>(kernels::kMaxGroup)) {
    return Error(Code::kUnsupported, group, " query heads to a key head: the GPU kernels take ",
                 kernels::kMaxGroup);
  }
  return OkStatus();
}

}  // namespace mainarch::amdgpu
