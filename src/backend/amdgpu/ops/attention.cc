// SPDX-License-Identifier: MIT
//
// Attention over paged KV: heads are made, splits of the context are attended to, what they leave is merged; of few rows
// by one launch.
#include <algorithm>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// Whether heads of several rows are: a workgroup then has one split of a row and key head, and those who wait for what
// others append, a row's last two splits at most, and those that merge are to leave places to all others.
bool PreparesSeveral(const backend::AttentionOp& op, const Lowering& to) {
  const backend::PagedCache& cache = backend::CacheOf(to.program, op);
  const uint64_t heads = uint64_t{to.rows} * static_cast<uint64_t>(cache.kv_heads);
  return to.rows <= std::min(to.shape.here_rows, kernels::kToldRows) && MergesHere(to.program, op, to.shape.max_splits) &&
         heads * 4 <= to.memory.compute_units && to.HasWorkers(heads * MostSplitsOf(cache, to.shape.max_splits));
}

// Whether heads of a step's few rows are made in the launch that attends. Of parts of a key head's queries some would ask
// for K and V that others are about to append.
bool PreparesHere(const backend::AttentionOp& op, const Lowering& to) {
  const backend::PagedCache& cache = backend::CacheOf(to.program, op);
  return op.near == backend::kNone && cache.key_dim == cache.value_dim && !IsLong(cache, to.shape.max_splits) &&
         kernels::QueryParts(static_cast<uint32_t>(op.heads / cache.kv_heads)) == 1 &&
         (to.rows == 1 || PreparesSeveral(op, to));
}

kernels::PrepareArgs PrepareOf(const backend::AttentionOp& op, const backend::PagedCache& cache, Lowering* to) {
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
  args.value_scale = static_cast<float>(op.value_scale);
  return args;
}

void EmitPrepare(const backend::AttentionOp& op, const backend::PagedCache& cache, Lowering* to) {
  kernels::PrepareArgs args = PrepareOf(op, cache, to);
  const uint64_t heads = args.heads + 2 * args.kv_heads;
  const backend::KvType type = TypeOf(cache, to->shape.kv);
  to->Add(PrepareKernel(type, HeadsOf(cache)), args, CeilDivide(to->rows * heads, kernels::kWaves));
  if (op.near == backend::kNone) return;
  args.kv.address = to->PagesAt(op.near, op.layer);
  args.tables_at = to->TablesAt(op.near);
  to->Add(PrepareNearKernel(HeadsOf(cache), quant::InfoOf(type).turns), args,
          CeilDivide(to->rows * 2 * uint64_t{args.kv_heads}, kernels::kWaves))
      .beside = true;
}

// Which of a step's attentions `op` is, and of how many.
void SetTurn(const backend::AttentionOp& op, const backend::Program& program, kernels::AttendHere* here) {
  for (const backend::Op& any : program.ops) {
    const auto* other = std::get_if<backend::AttentionOp>(&any);
    if (other == &op) here->turn = here->turns;
    here->turns += other != nullptr;
  }
}

kernels::AttendHere HereOf(const backend::AttentionOp& op, const backend::PagedCache& cache, const Lowering& to) {
  kernels::AttendHere here;
  if (to.rows > to.shape.here_rows || !MergesHere(to.program, op, to.shape.max_splits)) return here;
  here.words.address = to.memory.attend_words;
  SetTurn(op, to.program, &here);
  here.mergers = HereMergers(uint64_t{to.rows} * static_cast<uint64_t>(op.heads), cache, kernels::kLongMergeColumns,
                             to.memory.compute_units);
  return here;
}

const backend::PagedCache& NearCacheOf(const Lowering& to, const backend::AttentionOp& op) {
  return std::get<backend::PagedCache>(to.program.caches[static_cast<size_t>(op.near)]);
}

// Blocks of rows of a launch of many, times key heads.
uint64_t TallBlocks(const kernels::AttendArgs& args) {
  return CeilDivide(args.row_count, kernels::AttendTallRows(args.group)) * uint64_t{args.kv_heads};
}
// Splits that a block's rows see of a cache with such a window.
uint64_t TallSplits(const kernels::AttendArgs& args, const Lowering& to) {
  return std::min(to.shape.max_splits, kernels::MostSplitsOfRows(args.window, kernels::AttendTallRows(args.group)));
}

// Whether far tokens have splits of one block each, which many rows walk together.
bool HasTallFar(const Lowering& to) { return to.HasManyRows() && to.shape.max_splits <= kernels::kFarSplits; }

// Rows of the blocks that attend_prompt_* takes where they are one run; 0: it takes none. A block's workgroup goes through
// all of its context alone, so there are to be two for each unit.
uint32_t PromptRows(const backend::AttentionOp& op, const backend::PagedCache& cache, const Lowering& to) {
  const auto heads = static_cast<uint32_t>(op.heads), key_heads = static_cast<uint32_t>(cache.kv_heads);
  const uint32_t parts = kernels::QueryParts(heads / key_heads), group = heads / (key_heads * parts);
  const uint32_t rows = kernels::AttendPromptRows(group);
  const bool has = to.HasManyRows() && op.near == backend::kNone && cache.window == 0 && !IsLong(cache, to.shape.max_splits) &&
                   !AttendPromptKernel(TypeOf(cache, to.shape.kv), HeadsOf(cache)).empty();
  const uint64_t blocks = uint64_t{to.rows / rows} * key_heads * parts;
  return has && to.shape.attend_rows >= rows && blocks >= uint64_t{2} * to.memory.compute_units ? rows : 0;
}

// Workgroups of a launch whose rows attend_prompt_* may have, all of them even: a few then, who look.
uint64_t Besides(uint32_t run_rows, uint64_t units, const Lowering& to) {
  return run_rows == 0 ? units : std::min<uint64_t>(units, uint64_t{4} * to.memory.compute_units);
}
// Of a step's `rows` in several launches the first one has all whole runs.
void EmitTall(const backend::KvType& type, backend::HeadDims heads, kernels::AttendArgs args, uint32_t rows, Lowering* to) {
  const bool runs = args.run_rows != 0 && args.first_row == 0;
  if (runs) {
    kernels::AttendArgs all = args;
    all.row_count = rows;
    to->Add(AttendPromptKernel(type, heads), all, CeilDivide(rows, args.run_rows) * uint64_t{args.kv_heads});
  }
  to->Add(AttendTallKernel(type, heads), args, Besides(args.run_rows, TallBlocks(args) * TallSplits(args, *to), *to)).beside = runs;
}

// Attention to far tokens, and to those of the near cache: of either but for what the other has.
void EmitNear(const backend::AttentionOp& op, const backend::PagedCache& cache, kernels::AttendArgs args, Lowering* to) {
  const kernels::NearTokens near = NearOf(NearCacheOf(*to, op));
  args.window = near.window;
  args.kept = near.kept;
  const bool tall = to->HasManyRows();
  const uint64_t heads = uint64_t{args.row_count} * args.kv_heads;
  if (HasTallFar(*to)) {
    to->Add(AttendTallFarKernel(TypeOf(cache, to->shape.kv), HeadsOf(cache)), args, TallBlocks(args) * to->shape.max_splits);
  } else {
    to->Add(AttendFarKernel(TypeOf(cache, to->shape.kv), HeadsOf(cache)), kernels::AttendLongArgs{args, {}, {}},
            heads * std::min(to->shape.max_splits, kernels::kFarSplits));
  }
  args.kv.address = to->PagesAt(op.near, op.layer);
  args.tables_at = to->TablesAt(op.near);
  const uint64_t units = tall ? TallBlocks(args) * (TallSplits(args, *to) + 1) : heads * (kernels::MostSplits(near.window) + 1);
  to->Add(AttendNearKernel(HeadsOf(cache), tall), args, units).beside = true;
}

// A launch of its own that merges what splits left. `at_once`: by the kernel of long contexts, which merges the same to the
// bit but for a window, whose splits are others. It waits once, and of few rows what a merge waits for counts; of many
// rows it would read in vain.
void EmitMerge(const kernels::AttendMergeArgs& merge, bool at_once, Lowering* to) {
  const uint64_t heads = uint64_t{merge.row_count} * merge.heads;
  if (!at_once) {
    to->Add("attend_merge", merge, heads * CeilDivide(merge.head_dim, kernels::kMergeColumns));
    return;
  }
  const uint64_t slices = heads * CeilDivide(merge.head_dim, kernels::kLongMergeColumns);
  const bool wide = merge.head_dim % kernels::kWideMergeColumns == 0 && slices > uint64_t{2} * to->memory.compute_units;
  to->Add(wide ? "attend_long_merge_wide" : "attend_long_merge", merge,
          wide ? heads * (merge.head_dim / kernels::kWideMergeColumns) : slices);
}

// Rows [first, first + rows) of the step, but for those after the step's last. `run_rows`: PromptRows.
void EmitAttend(const backend::AttentionOp& op, const backend::PagedCache& cache, uint32_t first, uint32_t rows,
                uint32_t run_rows, Lowering* to) {
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
  args.page_heads = static_cast<uint32_t>(cache.kv_heads);
  args.kv_heads = args.page_heads * kernels::QueryParts(args.heads / args.page_heads);
  args.group = args.heads / args.kv_heads;
  args.window = static_cast<uint32_t>(cache.window);
  args.max_splits = MostPartsOf(to->program, op, to->shape.max_splits);
  const bool is_long = IsLong(cache, to->shape.max_splits);
  if (op.sinks != backend::kNone) args.sinks.address = to->WeightOf(op.sinks).vector;
  args.scale = static_cast<float>(op.scale);
  args.first_row = first;
  args.row_count = rows;
  args.run_rows = run_rows;
  if (op.gate != backend::kNone) {
    args.gate.address = to->At(op.gate);
    args.gate_stride = to->Stride(op.gate);
  }
  const uint64_t units = uint64_t{args.row_count} * args.kv_heads * args.max_splits;
  const kernels::AttendHere here = HereOf(op, cache, *to);
  const backend::KvType type = TypeOf(cache, to->shape.kv);
  const kernels::AttendShare share = ShareOf(op, *to);
  if (share.log_ranks != 0) EmitShareQueries(op, share, to);
  if (op.near != backend::kNone) {
    EmitNear(op, cache, args, to);
  } else if (is_long) {
    to->Add(AttendLongKernel(type, HeadsOf(cache)), kernels::AttendLongArgs{args, share, here},
            std::max<uint64_t>(units, here.mergers));
  } else if (to->HasManyRows()) {
    EmitTall(type, HeadsOf(cache), args, to->rows, to);
  } else {
    kernels::AttendOnceArgs once = {args, here, {}, {}};
    if (PreparesHere(op, *to)) {
      once.prepare = PrepareOf(op, cache, to);
      once.told = to->Tell(once.prepare.in.address, once.prepare.stride, kernels::kToldRows);
      if (to->rows > 1) once.here.appended_at = static_cast<uint32_t>(to->shape.here_rows * to->shape.attend_words);
    }
    const bool beside = once.told.turns != 0;
    const uint64_t workers = std::max<uint64_t>(units, here.mergers);
    to->Add(AttendKernel(type, HeadsOf(cache)), once, beside ? to->WorkersBeside(workers) : workers).beside = beside;
  }
  if (args.max_splits == 1 || here.turns != 0) return;
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
  merge.head_dim = static_cast<uint32_t>(cache.value_dim);
  merge.first_row = first;
  merge.row_count = args.row_count;
  merge.run_rows = run_rows;
  if (op.near != backend::kNone) {
    const kernels::NearTokens near = NearOf(NearCacheOf(*to, op));
    merge.window = near.window;
    const uint64_t heads = uint64_t{args.row_count} * args.heads;
    const bool by_rows = HasTallFar(*to);
    to->Add(by_rows ? "attend_near_merge_rows" : "attend_near_merge", kernels::AttendNearMergeArgs{merge, near.kept},
            by_rows ? CeilDivide(heads, kernels::kWaves) : heads * CeilDivide(merge.head_dim, kernels::kLongMergeColumns));
    return;
  }
  if (share.log_ranks != 0) return EmitSharedMerge(merge, share, to);
  if (!is_long && to->HasManyRows()) {
    to->Add("attend_merge_rows", merge, Besides(run_rows, CeilDivide(uint64_t{args.row_count} * args.heads, kernels::kWaves), *to));
    return;
  }
  EmitMerge(merge, is_long || (cache.window == 0 && to->rows <= kernels::kShareRows), to);
}

}  // namespace

void Emit(const backend::AttentionOp& op, Lowering* to) {
  if (LatentOf(to->program, op.cache) != nullptr) return EmitAttendLatent(op, to);
  const backend::PagedCache& cache = backend::CacheOf(to->program, op);
  if (!PreparesHere(op, *to)) EmitPrepare(op, cache, to);
  const uint32_t run_rows = PromptRows(op, cache, *to);
  uint32_t rows = std::min(to->shape.attend_rows, to->rows);
  if (run_rows != 0 && rows < to->rows) rows -= rows % run_rows;  // blocks of all launches begin at the same rows
  for (uint32_t first = 0; first < to->rows; first += rows) EmitAttend(op, cache, first, rows, run_rows, to);
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
  return OkStatus();
}

}  // namespace mainarch::amdgpu
