// SPDX-License-Identifier: MIT
#include "backend/cpu/ops/attention_plan.h"

#include <algorithm>
#include <cmath>

namespace mainarch::cpu {
namespace {

constexpr uint32_t kUnitsPerWorker = 4;
constexpr uint32_t kMaxItems = 4096;
constexpr int64_t kLineFloats = 16;

uint32_t DivideUp(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// Parts are stored only while whole blocks would leave workers idle (BeginStep).
uint64_t PartCapacity(const Workspace& ws, int64_t group) {
  // One more where a near cache's begin, and one of its kept tokens.
  const int64_t splits = (ws.program.max_position + kAttentionSplit - 1) / kAttentionSplit + 2;
  return static_cast<uint64_t>(4 * int64_t{ws.workers} * std::max<int64_t>(kMaxQueries, group) *
                               splits);
}

}  // namespace

AttentionPlan::AttentionPlan(Workspace* ws, int32_t cache, int32_t heads, int32_t near)
    : ws_(*ws),
      cache_(std::get<backend::PagedCache>(ws->program.caches[static_cast<size_t>(cache)])),
      near_(near == backend::kNone
                ? nullptr
                : &std::get<backend::PagedCache>(ws->program.caches[static_cast<size_t>(near)])),
      heads_(heads),
      block_rows_(std::max(1u, static_cast<uint32_t>(kMaxQueries * cache_.kv_heads / (heads * cache_.replicas)))),
      part_capacity_(PartCapacity(*ws, heads / cache_.kv_heads)),
      zeros_(static_cast<size_t>(cache_.value_dim)) {
  blocks_.resize(ws->options.max_rows);
}

void AttentionPlan::Carve(Carver* carve) {
  const int64_t capacity = static_cast<int64_t>(part_capacity_);
  parts_.resize(static_cast<size_t>(ws_.ranks));
  part_max_sum_.resize(static_cast<size_t>(ws_.ranks));
  scratch_.resize(static_cast<size_t>(ws_.workers));
  for (size_t r = 0; r < parts_.size(); ++r) {
    parts_[r] = carve->Take<float>(capacity * cache_.value_dim);
    part_max_sum_[r] = carve->Take<float>(capacity * 2);
  }
  for (float*& scratch : scratch_) {
    scratch =
        carve->Take<float>(kMaxQueries * (kAttentionSplit + 2 * cache_.value_dim + kLineFloats));
  }
  room_.resize(scratch_.size());
  for (uint8_t*& room : room_) room = carve->Take<uint8_t>(rounds() ? static_cast<int64_t>(AttendRoomBytes(cache_.key_dim)) : 0);
}

// Cuts the step's rows into blocks of one sequence whose queries share a pass over K and V; returns
// the parts of all.
uint64_t AttentionPlan::CutBlocks(absl::Span<const backend::StepRow> rows) {
  block_count_ = 0;
  uint64_t parts = 0;
  for (uint32_t at = 0; at < rows.size();) {
    AttendBlock& block = blocks_[block_count_++];
    block.first_row = at;
    block.sequence = rows[at].sequence;
    block.rows = 0;
    const int64_t first_position = rows[at].position;
    while (at < rows.size() && block.rows < block_rows_ && rows[at].sequence == block.sequence) {
      ++at;
      ++block.rows;
    }
    CutSplits(first_position, rows[at - 1].position, &block);
    block.first_part = static_cast<uint32_t>(parts);
    parts += uint64_t{block.rows} * static_cast<uint64_t>(heads_) * block.splits;
  }
  return parts;
}

void AttentionPlan::CutSplits(int64_t first_position, int64_t last_position, AttendBlock* block) const {
  const auto split_of = [](int64_t token) { return static_cast<uint32_t>(std::max<int64_t>(0, token) / kAttentionSplit); };
  const auto first_seen = [&](const backend::PagedCache& cache) {
    return cache.window == 0 ? 0 : first_position + 1 - cache.window;
  };
  block->first_split = split_of(first_seen(cache_));
  block->near_split = block->near_splits = 0;
  block->kept = false;
  if (near_ == nullptr) {
    block->splits = split_of(last_position) + 1 - block->first_split;
    return;
  }
  block->near_split = split_of(first_seen(*near_));
  block->near_splits = split_of(last_position) + 1 - block->near_split;
  const int64_t far_end = Seen(Piece::kFar, last_position).second;
  block->kept = near_->kept > 0 && far_end > 0;
  block->splits = DivideUp(static_cast<uint64_t>(far_end), kAttentionSplit) + block->near_splits + block->kept;
}

std::pair<int64_t, int64_t> AttentionPlan::Seen(Piece piece, int64_t position) const {
  const backend::PagedCache& own = near_ == nullptr ? cache_ : *near_;
  // Where the last tokens begin, of which the row's own is one.
  const int64_t last = own.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - own.window);
  switch (piece) {
    case Piece::kFar:
      return {own.kept, last};
    case Piece::kKept:
      return {0, std::min<int64_t>(own.kept, last)};
    case Piece::kAll:
    case Piece::kNear:
      break;
  }
  return {last, position + 1};
}

// Decides whether a unit of work is a whole block of one KV head or one split of it.
void AttentionPlan::BeginStep(const backend::Step& step) {
  const uint64_t parts = CutBlocks(step.rows);
  const uint64_t ranks = static_cast<uint64_t>(ws_.ranks), holders = ranks / static_cast<uint64_t>(cache_.replicas);
  const uint32_t kv_heads = static_cast<uint32_t>(cache_.kv_heads);
  const uint64_t whole = uint64_t{block_count_} * kv_heads * holders;
  const uint64_t wanted = uint64_t{kUnitsPerWorker} * static_cast<uint64_t>(ws_.workers);
  store_parts = whole < wanted && ws_.workers > 1 && parts <= part_capacity_;
  uint64_t count = 0;
  for (size_t b = 0; b < block_count_; ++b) {
    blocks_[b].first_unit = static_cast<uint32_t>(count);
    count += uint64_t{kv_heads} * (store_parts ? blocks_[b].splits : 1);
  }
  // A block that is all of its sequence's rows needs nothing that others prepare: with whole blocks as
  // units each is prepared where it is attended, and that is a phase less; unless it attends for other ranks, too.
  bool alone = true;
  for (size_t b = 1; b < block_count_; ++b) {
    alone = alone && blocks_[b].sequence != blocks_[b - 1].sequence;
  }
  prepare_with_attend = alone && !store_parts && cache_.replicas == 1;
  units = static_cast<uint32_t>(count);
  items = std::min(units, kMaxItems);
  // One KV head of one row is a unit of the preparation.
  const uint64_t prepare = uint64_t{step.rows.size()} * kv_heads;
  prepare_units_per_item = std::max(1u, static_cast<uint32_t>(prepare * ranks / (wanted * 2)));
}

void RopeTable::Carve(Carver* carve) {
  cos_ = carve->Take<float>(int64_t{ws_.options.max_rows} * half());
  sin_ = carve->Take<float>(int64_t{ws_.options.max_rows} * half());
}

void RopeTable::BeginStep(const backend::Step& step) {
  const size_t count = static_cast<size_t>(half());
  for (size_t row = 0; row < step.rows.size(); ++row) {
    const double position = step.rows[row].position;
    for (size_t i = 0; i < count; ++i) {
      // In fp64: an fp32 angle is wrong by 0.06 rad at a million tokens.
      const double angle = position * rope_.inv_freq[i];
      cos_[row * count + i] = static_cast<float>(std::cos(angle) * rope_.scale);
      sin_[row * count + i] = static_cast<float>(std::sin(angle) * rope_.scale);
    }
  }
}

}  // namespace mainarch::cpu
