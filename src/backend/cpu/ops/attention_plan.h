// SPDX-License-Identifier: MIT
//
// What the attention ops of a step share: how its rows are cut into units of work for one cache and
// number of heads, memory for parts, and the angles of a rope.
#ifndef MAINARCH_BACKEND_CPU_OPS_ATTENTION_PLAN_H_
#define MAINARCH_BACKEND_CPU_OPS_ATTENTION_PLAN_H_

#include <utility>
#include <vector>

#include "backend/cpu/workspace.h"

namespace mainarch::cpu {

// Rows of one sequence that attend together, to `splits` splits: those from first_split on of the cache, then, where
// there is a near one, near_splits from near_split on of that, and, if any are left, its kept tokens (PieceOf).
struct AttendBlock {
  uint32_t first_row, rows, sequence;
  uint32_t first_split, splits;
  uint32_t near_split, near_splits;
  bool kept;
  uint32_t first_unit;  // units of all blocks before this one, on one rank
  uint32_t first_part;  // stored parts before this one, on one rank
};

// What one of a block's splits is of: tokens of which cache, from which one on.
enum class Piece : uint8_t { kAll, kFar, kNear, kKept };
struct PieceAt {
  Piece piece;
  int64_t begin;
};

// So many splits, at absolute positions, are merged to one part, and then these parts are. In one chain the two thousand
// roundings of a million tokens would add up; where parts are alike they all go the same way.
inline constexpr int64_t kMergedSplits = 32;

class AttentionPlan : public Shared {
 public:
  // `near`: AttentionOp's.
  AttentionPlan(Workspace* ws, int32_t cache, int32_t heads, int32_t near);

  void Carve(Carver* carve) override;
  void BeginStep(const backend::Step& step) override;

  absl::Span<const AttendBlock> blocks() const { return {blocks_.data(), block_count_}; }
  PieceAt PieceOf(const AttendBlock& block, uint32_t split) const {
    const auto begin_of = [](uint32_t at) { return int64_t{at} * kAttentionSplit; };
    if (near_ == nullptr) return {Piece::kAll, begin_of(block.first_split + split)};
    const uint32_t far = block.splits - block.near_splits - block.kept;
    if (split < far) return {Piece::kFar, begin_of(block.first_split + split)};
    if (split < far + block.near_splits) return {Piece::kNear, begin_of(block.near_split + split - far)};
    return {Piece::kKept, 0};
  }
  // Whether the split is the last of its kMergedSplits among the block's.
  bool EndsMerged(const AttendBlock& block, uint32_t split) const {
    if (split + 1 == block.splits) return true;
    const PieceAt here = PieceOf(block, split), next = PieceOf(block, split + 1);
    return here.piece != next.piece || next.begin % (kMergedSplits * kAttentionSplit) == 0;
  }
  // The tokens [first, second) that the row at `position` sees of a piece.
  std::pair<int64_t, int64_t> Seen(Piece piece, int64_t position) const;
  // The first of a row's and head's parts, one a split of its block.
  int64_t PartOf(const AttendBlock& block, uint32_t row, int64_t head) const {
    return block.first_part + ((row - block.first_row) * heads_ + head) * block.splits;
  }
  float* part(int32_t rank, int64_t i) const {
    return parts_[static_cast<size_t>(rank)] + i * cache_.value_dim;
  }
  float* part_max_sum(int32_t rank, int64_t i) const {
    return part_max_sum_[static_cast<size_t>(rank)] + 2 * i;
  }
  float* scores(int worker) const { return scratch_[static_cast<size_t>(worker)]; }
  // Whether Kernels::attend_bf16 attends, and its room.
  bool rounds() const { return ws_.bf16 && ws_.kernels.attend_bf16 != nullptr; }
  uint8_t* room(int worker) const { return room_[static_cast<size_t>(worker)]; }
  float* own_part(int worker, int32_t i) const {
    return scores(worker) + kMaxQueries * kAttentionSplit + i * cache_.value_dim;
  }
  float* own_max_sum(int worker, int32_t i) const {
    return own_part(worker, kMaxQueries) + 2 * i;
  }
  // Of a query: kMergedSplits together.
  float* own_merged(int worker, int32_t i) const {
    return own_max_sum(worker, kMaxQueries) + i * cache_.value_dim;
  }
  const float* zeros() const { return zeros_.data(); }  // [value_dim]

  // Of the step.
  uint32_t units = 0;        // of one holder of KV heads: a rank, or several that have the same ones
  uint32_t items = 0;        // of one holder
  bool store_parts = false;  // a unit is one split, merged later; else a unit is a whole block
  uint32_t prepare_units_per_item = 1;
  bool prepare_with_attend = false;  // by the unit itself

 private:
  uint64_t CutBlocks(absl::Span<const backend::StepRow> rows);
  void CutSplits(int64_t first_position, int64_t last_position, AttendBlock* block) const;

  const Workspace& ws_;
  const backend::PagedCache& cache_;
  const backend::PagedCache* const near_;  // null: there is none
  const int64_t heads_;
  const uint32_t block_rows_;    // of a block, at most
  const uint64_t part_capacity_;  // on one rank
  std::vector<AttendBlock> blocks_;
  size_t block_count_ = 0;
  std::vector<float*> parts_;         // [rank]: [part, value_dim]
  std::vector<float*> part_max_sum_;  // [rank]: [part, 2]
  std::vector<float*> scratch_;       // [worker]: scores, one part a query, max and sum of each
  std::vector<uint8_t*> room_;        // [worker]
  std::vector<float> zeros_;
};

// Cosine and sine of the step's positions.
class RopeTable : public Shared {
 public:
  RopeTable(Workspace* ws, int32_t rope)
      : ws_(*ws), rope_(ws->program.ropes[static_cast<size_t>(rope)]) {}

  void Carve(Carver* carve) override;
  void BeginStep(const backend::Step& step) override;

  int32_t half() const { return rope_.rotary_dim / 2; }
  const float* cos(int64_t row) const { return cos_ + row * half(); }
  const float* sin(int64_t row) const { return sin_ + row * half(); }

 private:
  const Workspace& ws_;
  const backend::Rope& rope_;
  float* cos_ = nullptr;  // [max_rows, rotary_dim / 2]
  float* sin_ = nullptr;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_OPS_ATTENTION_PLAN_H_
