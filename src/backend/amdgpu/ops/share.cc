// SPDX-License-Identifier: MIT
//
// Attention that ranks which hold the same KV head share in long contexts (kernels/long_args.h): where they meet, and what
// goes before and behind.
#include <algorithm>

#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// Which of a step's shared attentions `op` is.
uint32_t TurnOf(const backend::AttentionOp& op, const Lowering& to) {
  uint32_t turn = 0;
  for (const backend::Op& any : to.program.ops) {
    const auto* other = std::get_if<backend::AttentionOp>(&any);
    if (other == nullptr) continue;
    if (other == &op) break;
    turn += IsShared(backend::CacheOf(to.program, *other), *other, to.shape.max_splits);
  }
  return turn;
}

// Bytes of a head's K and V from which ranks that hold it do better to share them: by the timing model, by which they take
// some 14 us longer to agree, and read 6 TB/s each.
constexpr uint64_t kShareBytes = uint64_t{96} << 20;

uint32_t ShareFrom(const backend::PagedCache& cache, const Shape& shape) {
  const uint64_t page = KvPageBytesOf(cache, TypeOf(cache, shape.kv));
  const uint64_t from = shape.options.share_from != 0 ? shape.options.share_from
                                                      : kShareBytes / page * kernels::kPageTokens;
  return static_cast<uint32_t>(std::clamp<uint64_t>(from, kernels::kSplitTokens, UINT32_MAX));
}

}  // namespace

kernels::AttendShare ShareOf(const backend::AttentionOp& op, const Lowering& to) {
  const backend::PagedCache& cache = backend::CacheOf(to.program, op);
  kernels::AttendShare share;
  // Large steps have work for all anyway.
  if (!IsShared(cache, op, to.shape.max_splits) || to.rows > std::min(kernels::kShareRows, to.shape.attend_rows)) {
    return share;
  }
  const auto ranks = static_cast<uint32_t>(cache.replicas), rank = static_cast<uint32_t>(to.rank);
  while (1u << share.log_ranks < ranks) ++share.log_ranks;
  share.rank = rank % ranks;
  for (uint32_t r = 0; r < ranks; ++r) {
    share.exchange[r].address = to.memory.exchange[rank - share.rank + r] + to.shape.share.at;
  }
  share.queries.address = to.memory.shared_queries;
  share.half = to.shape.share.words.half;
  share.chains_at = to.shape.share.words.chains_at;
  share.from = ShareFrom(cache, to.shape);
  share.sequence = TurnOf(op, to);
  share.per_step = to.shape.share.per_step;
  return share;
}

void EmitShareQueries(const backend::AttentionOp& op, const kernels::AttendShare& share, Lowering* to) {
  kernels::ShareQueriesArgs args;
  to->SetStep(&args);
  args.qkv.address = to->At(op.qkv);
  args.share = share;
  args.stride = to->Stride(op.qkv);
  args.columns = static_cast<uint32_t>(op.heads * backend::CacheOf(to->program, op).key_dim);
  to->Add("share_queries", args, uint64_t{to->rows} * CeilDivide(args.columns, kernels::kThreads),
          /*resident=*/true);
}

void EmitSharedMerge(const kernels::AttendMergeArgs& merge, const kernels::AttendShare& share, Lowering* to) {
  const uint64_t slices = merge.head_dim / kernels::kLongMergeColumns;
  to->Add("attend_shared_merge", kernels::AttendSharedMergeArgs{merge, share},
          uint64_t{merge.row_count} * (merge.heads << share.log_ranks) * slices, /*resident=*/true);
}

}  // namespace mainarch::amdgpu
