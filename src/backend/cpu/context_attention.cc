// SPDX-License-Identifier: MIT
//
// Attention over paged KV. The unit of arithmetic is (query, split of kAttentionSplit tokens at an
// absolute position); splits are merged in order. How units are spread over workers changes nothing.
#include <algorithm>

#include "backend/cpu/context.h"

namespace mainarch::cpu {
namespace {

constexpr uint32_t kUnitsPerWorker = 4;
constexpr uint32_t kMaxAttendItems = 4096;

uint32_t DivideUp(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

}  // namespace

// Cuts the step's rows into blocks of one sequence whose queries share a pass over K and V, and
// decides whether a unit of work is a whole block of one KV head or one split of it.
void CpuContext::PlanAttention() {
  const uint32_t group = static_cast<uint32_t>(program_.heads / program_.kv_heads);
  const uint32_t block_rows = std::max(1u, kMaxBlockRows / group);
  const uint32_t kv_heads = static_cast<uint32_t>(program_.kv_heads);
  const absl::Span<const backend::StepRow> rows = step_->rows;
  block_count_ = 0;
  uint64_t parts = 0;
  for (uint32_t at = 0; at < rows.size();) {
    AttendBlock& block = blocks_[block_count_++];
    block.first_row = at;
    block.sequence = rows[at].sequence;
    block.rows = 0;
    while (at < rows.size() && block.rows < block_rows && rows[at].sequence == block.sequence) {
      ++at;
      ++block.rows;
    }
    block.splits = DivideUp(uint64_t{rows[at - 1].position} + 1, kAttentionSplit);
    block.first_part = static_cast<uint32_t>(parts);
    parts += uint64_t{block.rows} * static_cast<uint64_t>(program_.heads) * block.splits;
  }
  const uint64_t whole = uint64_t{block_count_} * kv_heads * static_cast<uint64_t>(ranks_);
  const uint64_t wanted = uint64_t{kUnitsPerWorker} * static_cast<uint64_t>(team_.workers());
  store_parts_ = whole < wanted && team_.workers() > 1 && parts <= part_capacity_;
  uint64_t units = 0;
  for (uint32_t b = 0; b < block_count_; ++b) {
    blocks_[b].first_unit = static_cast<uint32_t>(units);
    units += uint64_t{kv_heads} * (store_parts_ ? blocks_[b].splits : 1);
  }
  // A block that is all of its sequence's rows needs nothing that others prepare: with whole blocks as
  // units each is prepared where it is attended, and that is a phase less.
  bool alone = true;
  for (uint32_t b = 1; b < block_count_; ++b) {
    alone = alone && blocks_[b].sequence != blocks_[b - 1].sequence;
  }
  prepare_with_attend_ = alone && !store_parts_;
  attend_units_ = static_cast<uint32_t>(units);
  attend_items_ = std::min(attend_units_, kMaxAttendItems);
  // One KV head of one row is a unit of the preparation.
  const uint64_t prepare = static_cast<uint64_t>(rows_) * kv_heads;
  prepare_units_per_item_ = std::max(
      1u, static_cast<uint32_t>(prepare * static_cast<uint64_t>(ranks_) / (wanted * 2)));
}

uint32_t CpuContext::AttendPrepareItems() const {
  if (prepare_with_attend_) return 0;
  return static_cast<uint32_t>(ranks_) *
         DivideUp(static_cast<uint64_t>(rows_) * static_cast<uint64_t>(program_.kv_heads),
                  prepare_units_per_item_);
}

void CpuContext::RunAttendPrepare(const backend::AttentionOp& op, uint32_t item) {
  const int64_t units = rows_ * program_.kv_heads;
  const uint32_t per_rank = DivideUp(static_cast<uint64_t>(units), prepare_units_per_item_);
  const int32_t rank = static_cast<int32_t>(item / per_rank);
  const int64_t first = int64_t{item % per_rank} * prepare_units_per_item_;
  const int64_t last = std::min<int64_t>(units, first + prepare_units_per_item_);
  for (int64_t unit = first; unit < last; ++unit) {
    PrepareHead(op, rank, unit / program_.kv_heads, unit % program_.kv_heads);
  }
}

// Norm and rotation of a row's K of one head and its group's queries, those in place; K and V go into
// the cache.
void CpuContext::PrepareHead(const backend::AttentionOp& op, int32_t rank, int64_t row, int64_t kv) {
  const int64_t kv_heads = program_.kv_heads, heads = program_.heads, dim = program_.head_dim;
  const float* q_norm = model_->weight(rank, op.q_norm).vector;
  const float* k_norm = model_->weight(rank, op.k_norm).vector;
  const int32_t half = program_.rope.rotary_dim / 2;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  float* k_scratch = static_cast<float*>(__builtin_alloca(static_cast<size_t>(dim) * sizeof(float)));
  float* const qkv = Row(rank, op.qkv, row);
  const float* cos = cos_ + row * half;
  const float* sin = sin_ + row * half;
  for (int64_t h = kv * heads / kv_heads; h < (kv + 1) * heads / kv_heads; ++h) {
    float* const q = qkv + h * dim;
    kernels_.norm_rope(q, q_norm, program_.rms_eps, program_.head_dim, cos, sin, half, scale, q);
  }
  kernels_.norm_rope(qkv + (heads + kv) * dim, k_norm, program_.rms_eps, program_.head_dim, cos, sin,
                     half, 1.0f, k_scratch);
  const backend::StepRow& at = step_->rows[static_cast<size_t>(row)];
  const uint32_t page = step_->sequences[at.sequence].caches[0].pages[at.position / kLanes];
  KvWriteArgs write;
  write.format = kv_format_;
  write.head_dim = program_.head_dim;
  write.chunk = KvHead(rank, op.kv_layer, static_cast<int32_t>(kv)) +
                page / kKvChunkPages * KvChunkStride();
  write.page = static_cast<int32_t>(page % kKvChunkPages);
  write.slot = static_cast<int32_t>(at.position % kLanes);
  write.k = k_scratch;
  write.v = qkv + (heads + kv_heads + kv) * dim;
  kernels_.kv_write(write);
}

void CpuContext::RunAttend(const backend::AttentionOp& op, uint32_t item, int worker) {
  const int32_t rank = static_cast<int32_t>(item / attend_items_);
  const uint64_t index = item % attend_items_;
  const uint32_t begin = static_cast<uint32_t>(attend_units_ * index / attend_items_);
  const uint32_t end = static_cast<uint32_t>(attend_units_ * (index + 1) / attend_items_);
  Worker* scratch = &workers_[static_cast<size_t>(worker)];
  if (!store_parts_) {
    // Head after head: the blocks of a prompt find its K and V in the worker's cache.
    uint32_t at = begin % block_count_;
    int32_t kv_head = static_cast<int32_t>(begin / block_count_);
    for (uint32_t unit = begin; unit < end; ++unit) {
      const AttendBlock& block = blocks_[at];
      for (uint32_t i = 0; prepare_with_attend_ && i < block.rows; ++i) {
        PrepareHead(op, rank, block.first_row + i, kv_head);
      }
      AttendUnit(op, rank, block, kv_head, 0, block.splits, scratch);
      if (++at < block_count_) continue;
      at = 0;
      ++kv_head;
    }
    return;
  }
  // The block of the first unit: the last one that begins at or before it.
  const AttendBlock* block =
      std::upper_bound(blocks_.data(), blocks_.data() + block_count_, begin,
                       [](uint32_t unit, const AttendBlock& b) { return unit < b.first_unit; }) - 1;
  for (uint32_t unit = begin; unit < end; ++unit) {
    while (block + 1 < blocks_.data() + block_count_ && block[1].first_unit <= unit) ++block;
    const uint32_t within = unit - block->first_unit;
    const int32_t kv_head = static_cast<int32_t>(within / block->splits);
    AttendUnit(op, rank, *block, kv_head, within % block->splits, within % block->splits + 1, scratch);
  }
}

// Splits [split_begin, split_end) of one KV head for all queries of a block, at most eight at a time.
void CpuContext::AttendUnit(const backend::AttentionOp& op, int32_t rank, const AttendBlock& block,
                            int32_t kv_head, uint32_t split_begin, uint32_t split_end,
                            Worker* scratch) {
  const int64_t heads = program_.heads, dim = program_.head_dim;
  const uint32_t group = static_cast<uint32_t>(heads / program_.kv_heads);
  const uint32_t queries = block.rows * group;
  float* scores = scratch->attend;
  float* own_parts = scores + kMaxBlockRows * kAttentionSplit;
  float* own_max_sum = own_parts + kMaxBlockRows * dim;
  float running[kMaxBlockRows][2];
  AttendArgs args;
  args.format = kv_format_;
  args.head_dim = program_.head_dim;
  args.chunks = KvHead(rank, op.kv_layer, kv_head);
  args.chunk_stride = KvChunkStride();
  args.page_ids = step_->sequences[block.sequence].caches[0].pages.data();
  args.scratch = scores;
  for (uint32_t first = 0; first < queries; first += kMaxBlockRows) {
    const uint32_t count = std::min<uint32_t>(kMaxBlockRows, queries - first);
    args.queries = static_cast<int32_t>(count);
    for (uint32_t split = split_begin; split < split_end; ++split) {
      args.begin = int64_t{split} * kAttentionSplit;
      args.end = args.begin + kAttentionSplit;
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t row = block.first_row + (first + i) / group;
        const int64_t head = int64_t{kv_head} * group + (first + i) % group;
        args.q[i] = Row(rank, op.qkv, row) + head * dim;
        args.visible[i] = int64_t{step_->rows[row].position} + 1;
        args.out[i] = own_parts + i * dim;
        args.max_sum[i] = own_max_sum + 2 * i;
        if (store_parts_) {
          const int64_t part = block.first_part +
                               ((row - block.first_row) * heads + head) * block.splits + split;
          args.out[i] = parts_[static_cast<size_t>(rank)] + part * dim;
          args.max_sum[i] = part_max_sum_[static_cast<size_t>(rank)] + 2 * part;
        } else if (block.splits == 1) {  // nothing to merge it with
          args.out[i] = Row(rank, op.out, row) + head * dim;
        }
      }
      kernels_.attend(args);
      if (store_parts_) continue;
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t row = block.first_row + (first + i) / group;
        float* out = Row(rank, op.out, row) + (int64_t{kv_head} * group + (first + i) % group) * dim;
        if (block.splits == 1) {
          kernels_.scale(out, 1.0f / args.max_sum[i][1], dim);
          continue;
        }
        if (split == split_begin) {
          running[i][0] = -__builtin_inff();
          running[i][1] = 0;
        }
        kernels_.merge_split(args.out[i], args.max_sum[i], program_.head_dim, out, running[i]);
        if (split + 1 == split_end) kernels_.scale(out, 1.0f / running[i][1], dim);
      }
    }
  }
}

void CpuContext::RunAttendMerge(const backend::AttentionOp& op, uint32_t item) {
  const int32_t rank = static_cast<int32_t>(item / rows_);
  const uint32_t row = static_cast<uint32_t>(item % rows_);
  const AttendBlock* block =
      std::upper_bound(blocks_.data(), blocks_.data() + block_count_, row,
                       [](uint32_t r, const AttendBlock& b) { return r < b.first_row; }) - 1;
  const int64_t heads = program_.heads, dim = program_.head_dim;
  for (int64_t head = 0; head < heads; ++head) {
    float* out = Row(rank, op.out, row) + head * dim;
    float running[2] = {-__builtin_inff(), 0};
    const int64_t first = block->first_part + ((row - block->first_row) * heads + head) * block->splits;
    for (uint32_t split = 0; split < block->splits; ++split) {
      kernels_.merge_split(parts_[static_cast<size_t>(rank)] + (first + split) * dim,
                           part_max_sum_[static_cast<size_t>(rank)] + 2 * (first + split),
                           program_.head_dim, out, running);
    }
    kernels_.scale(out, 1.0f / running[1], dim);
  }
}

}  // namespace mainarch::cpu
