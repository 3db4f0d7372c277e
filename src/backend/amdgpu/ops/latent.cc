// SPDX-License-Identifier: MIT
//
// Latent attention: products of each head with a matrix of its own, what a token's key and its queries
// are made of, and attention of all heads to the one key head.
//
// What heads' products take is fp32, as a product of all rows leaves it, or split rows, as attention
// does; they leave fp32 where attention takes it as q, and else split rows, for a product.
#include <algorithm>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

using backend::Program;

constexpr uint64_t kMostTallShares = 64;

// The attention that takes what a LatentOp makes, right behind it, or null.
const backend::AttentionOp* AttentionBehind(const backend::LatentOp& op, const backend::Op* next) {
  const auto* attention = next == nullptr ? nullptr : std::get_if<backend::AttentionOp>(next);
  return attention != nullptr && attention->qkv == op.qkv ? attention : nullptr;
}

const backend::WeightSlice& HeadOf(const Program& program, const backend::HeadsMatmulOp& op) {
  return program.weights[static_cast<size_t>(op.w)].ranks[0][0];
}

// Workgroups of attend_latent_tall_* for `units` of rows and heads, one a compute unit at a time: as many times more as
// splits are to be shared by so that the last of them end together. What a workgroup does before its first split takes as
// long as a split.
uint64_t TallWorkers(uint64_t units, uint64_t splits, uint64_t compute_units) {
  uint64_t best = 1, least = UINT64_MAX;
  for (uint64_t shares = 1; shares <= std::min<uint64_t>(splits, kMostTallShares); ++shares) {
    const uint64_t turns = CeilDivide(units * shares, compute_units), cost = turns * (CeilDivide(splits, shares) + 1);
    if (cost >= least) continue;
    least = cost;
    best = shares;
  }
  return units * best;
}

}  // namespace

const backend::LatentOp* LatentOf(const Program& program, int32_t cache) {
  for (size_t i = 0; i + 1 < program.ops.size(); ++i) {
    const auto* latent = std::get_if<backend::LatentOp>(&program.ops[i]);
    const auto* attention = latent == nullptr ? nullptr : AttentionBehind(*latent, &program.ops[i + 1]);
    if (attention != nullptr && attention->cache == cache) return latent;
  }
  return nullptr;
}

bool LeavesSplit(const Program& program, const backend::HeadsMatmulOp& op) {
  return std::none_of(program.ops.begin(), program.ops.end(), [&](const backend::Op& any) {
    const auto* attention = std::get_if<backend::AttentionOp>(&any);
    return attention != nullptr && attention->qkv == op.out;
  });
}

void Emit(const backend::HeadsMatmulOp& op, Lowering* to) {
  const PlacedWeight& w = to->WeightOf(op.w);
  const backend::WeightSlice& head = HeadOf(to->program, op);
  kernels::HeadsMatmulArgs args;
  to->SetStep(&args);
  args.x.address = to->At(op.in);
  args.out.address = to->At(op.out);
  args.w = w.tiles;
  args.head_bytes = w.group_bytes;
  args.head_scale_bytes = w.group_scale_bytes;
  args.x_stride = to->Stride(op.in);
  args.x_at = static_cast<uint32_t>(op.in_at);
  args.x_step = static_cast<uint32_t>(op.in_step);
  args.out_stride = to->Stride(op.out);
  args.out_at = static_cast<uint32_t>(op.out_at);
  args.out_step = static_cast<uint32_t>(op.out_step);
  args.heads = static_cast<uint32_t>(to->program.weights[static_cast<size_t>(op.w)].groups);
  args.columns = static_cast<uint32_t>(head.col_end - head.col_begin);
  args.width = static_cast<uint32_t>(head.row_end - head.row_begin);
  args.rows = to->rows;
  args.x_split = LiesSplit(to->program, op.in);
  args.out_split = LeavesSplit(to->program, op);
  to->Add(HeadsMatmulKernel(w.format), args,
          uint64_t{args.heads} * args.w.outputs * CeilDivide(to->rows, kernels::kTileRows));
}

void Emit(const backend::LatentOp& op, Lowering* to) {
  const backend::AttentionOp& attention = *AttentionBehind(op, to->Next());
  kernels::LatentArgs args;
  to->SetStep(&args);
  args.q.address = to->At(op.q);
  args.kv.address = to->At(op.kv);
  args.qkv.address = to->At(op.qkv);
  args.norm.address = to->WeightOf(op.norm).vector;
  args.cosine.address = to->memory.cosine[static_cast<size_t>(op.rope)];
  args.sine.address = to->memory.sine[static_cast<size_t>(op.rope)];
  args.pages.address = to->PagesAt(attention.cache, attention.layer);
  args.tables_at = to->TablesAt(attention.cache);
  args.q_stride = to->Stride(op.q);
  args.kv_stride = to->Stride(op.kv);
  args.qkv_stride = to->Stride(op.qkv);
  args.heads = static_cast<uint32_t>(op.heads);
  args.still = static_cast<uint32_t>(op.still);
  args.turning = static_cast<uint32_t>(op.turning);
  args.latent = static_cast<uint32_t>(op.latent);
  args.pairs = op.pairs;
  args.inverse_latent = 1.0f / static_cast<float>(op.latent);
  args.epsilon = op.epsilon;
  // It and the heads' product before it write other columns, and read what both had waited for.
  const auto* before =
      to->Before() == nullptr ? nullptr : std::get_if<backend::HeadsMatmulOp>(to->Before());
  to->Add(LatentKernel(to->shape.kv), args,
          CeilDivide(uint64_t{to->rows} * (args.heads + 1), kernels::kWaves))
      .beside = before != nullptr && before->in == op.q && before->out == op.qkv;
}

void EmitAttendLatent(const backend::AttentionOp& op, Lowering* to) {
  const backend::LatentOp& latent = *LatentOf(to->program, op.cache);
  kernels::AttendLatentArgs args;
  to->SetStep(&args);
  args.qkv.address = to->At(op.qkv);
  args.pages.address = to->PagesAt(op.cache, op.layer);
  args.tables_at = to->TablesAt(op.cache);
  args.out.address = to->At(op.out);
  args.parts.address = to->memory.attend_parts;
  args.q_stride = to->Stride(op.qkv);
  args.out_stride = to->Stride(op.out);
  args.heads = static_cast<uint32_t>(op.heads);
  args.turning = static_cast<uint32_t>(latent.turning);
  args.latent = static_cast<uint32_t>(latent.latent);
  args.max_splits = std::min(to->shape.max_splits, kernels::kLatentMostSplits);
  args.scale = static_cast<float>(op.scale);
  args.row_count = std::min(to->shape.attend_rows, to->rows);
  // Rows of prompts go together by fours; others of such a step do not.
  const bool tall = to->HasManyRows() && args.max_splits > 1 &&
                    kernels::LatentTallTakes(to->shape.kv, args.turning, args.latent);
  args.others = tall;
  args.least_blocks = kernels::kLatentTallBlocks;
  const uint64_t head_tiles = CeilDivide(args.heads, kernels::kLatentHeads);
  kernels::AttendMergeArgs merge;
  to->SetStep(&merge);
  merge.parts = {args.parts.address};
  merge.out = args.out;
  merge.out_stride = args.out_stride;
  merge.heads = args.heads;
  merge.max_splits = args.max_splits;
  merge.head_dim = args.latent;
  merge.row_count = args.row_count;
  for (uint32_t first = 0; first < to->rows; first += to->shape.attend_rows) {
    args.first_row = merge.first_row = first;
    if (tall) {
      const uint64_t groups = CeilDivide(args.row_count, kernels::kLatentTallRows) * head_tiles;
      to->Add(AttendLatentTallKernel(to->shape.kv), args,
              TallWorkers(groups, args.max_splits, to->memory.compute_units));
    }
    // Of a prompt nothing is left: so many workgroups that all of them find so at once.
    const uint64_t units = args.row_count * head_tiles * args.max_splits, few = uint64_t{2} * to->memory.compute_units;
    to->Add(AttendLatentKernel(to->shape.kv), args, tall ? std::min(units, few) : units).beside = tall;
    if (args.max_splits == 1) continue;
    to->Add("attend_latent_merge", merge,
            uint64_t{args.row_count} * args.heads * CeilDivide(args.latent, kernels::kMergeColumns));
  }
}

Status CheckLatents(const backend::LatentOp& op, const backend::PagedCache& cache) {
  const auto most = [](uint32_t n) { return static_cast<int32_t>(n); };
  if (cache.window != 0) {
    return Error(Code::kUnsupported, "latents with a window of ", cache.window,
                 " tokens: the GPU kernels see all");
  }
  if (op.turning % 4 != 0 || op.turning > most(kernels::kLatentMostTurning)) {
    return Error(Code::kUnsupported, op.turning, " elements of a head turn beside a latent: the GPU kernels take multiples of 4, ",
                 kernels::kLatentMostTurning, " at most");
  }
  // Of more than 64 elements each workgroup that merges splits has 64.
  const int32_t multiple = op.latent > most(kernels::kMergeColumns) ? most(kernels::kMergeColumns)
                                                                    : most(kernels::kStepColumns);
  if (op.latent % multiple == 0 && op.latent <= most(kernels::kLatentMost)) return OkStatus();
  return Error(Code::kUnsupported, "latents of ", op.latent, ": the GPU kernels take 32 and multiples of 64, ",
               kernels::kLatentMost, " at most");
}

Status CheckOp(const Program& program, const backend::LatentOp& op, const backend::Op*) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (std::get_if<backend::LatentOp>(&program.ops[i]) != &op) continue;
    if (i + 1 < program.ops.size() && AttentionBehind(op, &program.ops[i + 1]) != nullptr) return OkStatus();
  }
  return Error(Code::kUnsupported, "op latent of \"", program.buffers[static_cast<size_t>(op.qkv)].label,
               "\": the GPU kernels want its attention right behind it");
}

Status CheckOp(const Program& program, const backend::HeadsMatmulOp& op, const backend::Op*) {
  const backend::WeightSlice& head = HeadOf(program, op);
  const int64_t columns = head.col_end - head.col_begin;
  const bool split = LiesSplit(program, op.in);
  const int64_t multiple = split ? kernels::kStepColumns : 4;
  if (op.in_at % multiple != 0 || op.in_step % multiple != 0 || columns % multiple != 0) {
    return Error(Code::kUnsupported, "heads of ", columns, " in \"",
                 program.buffers[static_cast<size_t>(op.in)].label, "\", from ", op.in_at, " on, ", op.in_step,
                 " apart: the GPU kernels multiply multiples of ", multiple);
  }
  return OkStatus();
}

}  // namespace mainarch::amdgpu
