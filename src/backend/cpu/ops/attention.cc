// SPDX-License-Identifier: MIT
//
// Attention over paged KV. The unit of arithmetic is (query, split of kAttentionSplit tokens at an
// absolute position); splits are merged in order, by groups and then these (kMergedSplits). How units are spread over workers changes nothing.
#include "backend/cpu/ops/attention_plan.h"
#include "backend/cpu/phase.h"

#include <algorithm>
#include <tuple>

namespace mainarch::cpu {
namespace {

uint32_t DivideUp(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// What the phases of one op have in common.
class Attention : public Phase {
 protected:
  Attention(const backend::AttentionOp& op, Workspace* ws)
      : Phase(ws),
        op_(op),
        cache_(backend::CacheOf(ws->program, op)),
        plan_(*ws->Share<AttentionPlan>(absl::StrCat("attention ", op.cache, " ", op.heads, " ", op.near),
                                        op.cache, op.heads, op.near)),
        rope_(op.rope == backend::kNone
                  ? nullptr
                  : ws->Share<RopeTable>(absl::StrCat("rope ", op.rope), op.rope)),
        heads_(op.heads),
        kv_heads_(cache_.kv_heads),
        key_dim_(cache_.key_dim),
        value_dim_(cache_.value_dim),
        group_(static_cast<uint32_t>(op.heads / cache_.kv_heads)),
        // As if from the head size in fp32, for the bits that such a scale has.
        scale_(1.0f / static_cast<float>(1 / op.scale)) {}

  PagedPool& pool(int32_t cache) { return ws_.caches.paged(cache); }
  const backend::StepCache& ListOf(uint32_t sequence, int32_t cache) const {
    return ws_.step().sequences[sequence].caches[static_cast<size_t>(cache)];
  }
  float* Out(int32_t rank, int64_t row, int64_t head) const {
    return ws_.Row(rank, op_.out, row) + head * value_dim_;
  }

  void PrepareHead(int32_t rank, int64_t row, int64_t kv);
  // A head of Q or of K, as the cache's type wants it: products of both stay what they are, and so are those with what a
  // near cache holds.
  void Turn(float* head) {
    if (!quant::InfoOf(pool(op_.cache).layout().format).turns) return;
    ws_.kernels.hadamard(head, static_cast<int32_t>(key_dim_),
                         static_cast<int32_t>(quant::HadamardSize(static_cast<uint32_t>(key_dim_))));
  }
  void WriteKv(int32_t cache, int32_t rank, int64_t row, int64_t kv, const float* k, const float* v);
  // The largest score and the sum of the weights of nothing.
  static void Empty(float* max_sum) { max_sum[0] = -__builtin_inff(), max_sum[1] = 0; }
  void Merge(const float* part, const float* part_max_sum, float* out, float* max_sum) const {
    ws_.kernels.merge_split(part, part_max_sum, static_cast<int32_t>(value_dim_), out, max_sum);
  }
  void Finish(int32_t rank, int64_t row, int64_t head, float sum);
  void FinishMerged(int32_t rank, int64_t row, int64_t head, float* running);

  const backend::AttentionOp op_;
  const backend::PagedCache& cache_;
  AttentionPlan& plan_;
  const RopeTable* rope_;
  const int64_t heads_, kv_heads_, key_dim_, value_dim_;
  const uint32_t group_;
  const float scale_;
};

// Bias, norm and rotation of a row's K of one head and its group's queries, those in place; K and V go
// into the cache.
void Attention::PrepareHead(int32_t rank, int64_t row, int64_t kv) {
  const float* q_norm = ws_.Vector(rank, op_.q_norm);
  const float* k_norm = ws_.Vector(rank, op_.k_norm);
  const float* bias = ws_.Vector(rank, op_.bias);
  const int32_t half = rope_ == nullptr ? 0 : rope_->half();
  const float* cos = rope_ == nullptr ? nullptr : rope_->cos(row);
  const float* sin = rope_ == nullptr ? nullptr : rope_->sin(row);
  float* k_scratch =
      static_cast<float*>(__builtin_alloca(static_cast<size_t>(key_dim_) * sizeof(float)));
  float* const qkv = ws_.Row(rank, op_.qkv, row);
  const float eps = ws_.program.rms_eps;
  const int32_t dim = static_cast<int32_t>(key_dim_);
  const int64_t k_at = (heads_ + kv) * key_dim_;
  const int64_t v_at = (heads_ + kv_heads_) * key_dim_ + kv * value_dim_;
  const auto add_bias = [&](int64_t at, int64_t count) {
    const float* part = bias + at;
    ws_.kernels.add_tree(qkv + at, &part, 1, count);
  };
  if (bias != nullptr) {
    add_bias(kv * group_ * key_dim_, group_ * key_dim_);
    add_bias(k_at, key_dim_);
    add_bias(v_at, value_dim_);
  }
  for (int64_t h = kv * group_; h < (kv + 1) * group_; ++h) {
    float* const q = qkv + h * key_dim_;
    ws_.kernels.norm_rope(q, q_norm, eps, dim, cos, sin, half, scale_, q);
    Turn(q);
  }
  if (rank % cache_.replicas != 0) return;  // another rank writes the same
  ws_.kernels.norm_rope(qkv + k_at, k_norm, eps, dim, cos, sin, half, 1.0f, k_scratch);
  Turn(k_scratch);
  if (op_.value_scale != 1) ws_.kernels.scale(qkv + v_at, static_cast<float>(op_.value_scale), value_dim_);
  WriteKv(op_.cache, rank, row, kv, k_scratch, qkv + v_at);
  if (op_.near != backend::kNone) WriteKv(op_.near, rank, row, kv, k_scratch, qkv + v_at);
}

void Attention::WriteKv(int32_t cache, int32_t rank, int64_t row, int64_t kv, const float* k, const float* v) {
  const backend::StepRow& at = ws_.step().rows[static_cast<size_t>(row)];
  const backend::StepCache& list = ListOf(at.sequence, cache);
  const uint32_t page = list.pages[at.position / kLanes - list.first_page];
  KvWriteArgs write;
  write.kv = pool(cache).layout();
  write.chunk = pool(cache).Head(rank, op_.layer, static_cast<int32_t>(kv)) +
                page / kKvChunkPages * pool(cache).chunk_stride();
  write.page = static_cast<int32_t>(page % kKvChunkPages);
  write.slot = static_cast<int32_t>(at.position % kLanes);
  write.k = k;
  write.v = v;
  ws_.kernels.kv_write(write);
}

// Divides by the sum of the weights, and applies the gate.
void Attention::Finish(int32_t rank, int64_t row, int64_t head, float sum) {
  float* out = Out(rank, row, head);
  ws_.kernels.scale(out, 1.0f / sum, value_dim_);
  if (op_.gate == backend::kNone) return;
  ws_.kernels.gate(out, ws_.Row(rank, op_.gate, row) + head * value_dim_, value_dim_);
}

// All splits are merged into out: the sink comes last.
void Attention::FinishMerged(int32_t rank, int64_t row, int64_t head, float* running) {
  if (const float* sinks = ws_.Vector(rank, op_.sinks)) {
    const float sink[2] = {sinks[head], 1};
    Merge(plan_.zeros(), sink, Out(rank, row, head), running);
  }
  Finish(rank, row, head, running[1]);
}

// One item: some KV heads of some rows.
class AttendPrepare : public Attention {
 public:
  AttendPrepare(const backend::AttentionOp& op, Workspace* ws) : Attention(op, ws) {}

  uint32_t Open() override {
    if (plan_.prepare_with_attend) return 0;
    return static_cast<uint32_t>(ws_.ranks) *
           DivideUp(static_cast<uint64_t>(ws_.rows() * kv_heads_), plan_.prepare_units_per_item);
  }

  void Run(uint32_t item, int) override {
    const int64_t units = ws_.rows() * kv_heads_;
    const uint32_t per_rank = DivideUp(static_cast<uint64_t>(units), plan_.prepare_units_per_item);
    const int32_t rank = static_cast<int32_t>(item / per_rank);
    const int64_t first = int64_t{item % per_rank} * plan_.prepare_units_per_item;
    const int64_t last = std::min<int64_t>(units, first + plan_.prepare_units_per_item);
    for (int64_t unit = first; unit < last; ++unit) {
      PrepareHead(rank, unit / kv_heads_, unit % kv_heads_);
    }
  }
};

// One item: some units of the plan.
class Attend : public Attention {
 public:
  Attend(const backend::AttentionOp& op, Workspace* ws) : Attention(op, ws) {}

  uint32_t Open() override { return static_cast<uint32_t>(ws_.ranks / cache_.replicas) * plan_.items; }

  // Of a rank, or of several that have the same KV heads: K and V are read once for the queries of all.
  void Run(uint32_t item, int worker) override {
    const int32_t rank = static_cast<int32_t>(item / plan_.items) * cache_.replicas;
    const uint64_t index = item % plan_.items;
    const uint32_t begin = static_cast<uint32_t>(plan_.units * index / plan_.items);
    const uint32_t end = static_cast<uint32_t>(plan_.units * (index + 1) / plan_.items);
    if (plan_.store_parts) {
      RunSplits(rank, begin, end, worker);
    } else {
      RunBlocks(rank, begin, end, worker);
    }
  }

 private:
  // Head after head: the blocks of a prompt find its K and V in the worker's cache.
  void RunBlocks(int32_t rank, uint32_t begin, uint32_t end, int worker) {
    const uint32_t blocks = static_cast<uint32_t>(plan_.blocks().size());
    for (uint32_t unit = begin; unit < end; ++unit) {
      const AttendBlock& block = plan_.blocks()[unit % blocks];
      const int32_t kv_head = static_cast<int32_t>(unit / blocks);
      for (uint32_t i = 0; plan_.prepare_with_attend && i < block.rows; ++i) {
        PrepareHead(rank, block.first_row + i, kv_head);
      }
      RunUnit(rank, block, kv_head, 0, block.splits, worker);
    }
  }

  void RunSplits(int32_t rank, uint32_t begin, uint32_t end, int worker) {
    const absl::Span<const AttendBlock> blocks = plan_.blocks();
    // The block of the first unit: the last one that begins at or before it.
    const AttendBlock* block =
        std::upper_bound(blocks.begin(), blocks.end(), begin,
                         [](uint32_t unit, const AttendBlock& b) { return unit < b.first_unit; }) -
        1;
    for (uint32_t unit = begin; unit < end; ++unit) {
      while (block + 1 < blocks.end() && block[1].first_unit <= unit) ++block;
      const uint32_t within = unit - block->first_unit;
      const int32_t kv_head = static_cast<int32_t>(within / block->splits);
      RunUnit(rank, *block, kv_head, within % block->splits, within % block->splits + 1, worker);
    }
  }

  // A block's queries to a KV head: row after row, those of rank after rank.
  struct Query {
    int32_t rank;
    uint32_t row;
    int64_t head;
  };
  Query QueryAt(int32_t rank, const AttendBlock& block, int32_t kv_head, uint32_t index) const {
    const uint32_t of_row = group_ * static_cast<uint32_t>(cache_.replicas), in_row = index % of_row;
    return {rank + static_cast<int32_t>(in_row / group_), block.first_row + index / of_row,
            int64_t{kv_head} * group_ + in_row % group_};
  }
  void RunUnit(int32_t rank, const AttendBlock& block, int32_t kv_head, uint32_t split_begin,
               uint32_t split_end, int worker);
  void FillCache(int32_t rank, const AttendBlock& block, int32_t kv_head, PieceAt at, AttendArgs* args);
  void FillQueries(int32_t rank, const AttendBlock& block, int32_t kv_head, uint32_t first,
                   uint32_t split, int worker, AttendArgs* args);

  // A block of one split has nothing to merge it with.
  bool Alone(const AttendBlock& block) const {
    return block.splits == 1 && op_.sinks == backend::kNone;
  }
};

// Splits [split_begin, split_end) of those that the block sees, of one KV head, for all queries of the
// block, at most kMaxQueries at a time.
void Attend::RunUnit(int32_t rank, const AttendBlock& block, int32_t kv_head, uint32_t split_begin,
                     uint32_t split_end, int worker) {
  const uint32_t queries = block.rows * group_ * static_cast<uint32_t>(cache_.replicas);
  float merged[kMaxQueries][2], running[kMaxQueries][2];  // of kMergedSplits, of all before
  AttendArgs args;
  args.scratch = plan_.scores(worker);
  args.room = plan_.room(worker);
  args.fetch_next_page = ws_.near_bytes > 0;
  for (uint32_t first = 0; first < queries; first += kMaxQueries) {
    const uint32_t count = std::min<uint32_t>(kMaxQueries, queries - first);
    args.queries = static_cast<int32_t>(count);
    for (uint32_t split = split_begin; split < split_end; ++split) {
      FillCache(rank, block, kv_head, plan_.PieceOf(block, split), &args);
      FillQueries(rank, block, kv_head, first, split, worker, &args);
      plan_.rounds() ? ws_.kernels.attend_bf16(args) : ws_.kernels.attend(args);
      if (plan_.store_parts) continue;
      for (uint32_t i = 0; i < count; ++i) {
        const Query query = QueryAt(rank, block, kv_head, first + i);
        if (Alone(block)) {
          Finish(query.rank, query.row, query.head, args.max_sum[i][1]);
          continue;
        }
        if (split == split_begin) Empty(running[i]), Empty(merged[i]);
        float* const together = plan_.own_merged(worker, static_cast<int32_t>(i));
        Merge(args.out[i], args.max_sum[i], together, merged[i]);
        if (!plan_.EndsMerged(block, split)) continue;
        Merge(together, merged[i], Out(query.rank, query.row, query.head), running[i]);
        Empty(merged[i]);
        if (split + 1 == split_end) FinishMerged(query.rank, query.row, query.head, running[i]);
      }
    }
  }
}

void Attend::FillCache(int32_t rank, const AttendBlock& block, int32_t kv_head, PieceAt at, AttendArgs* args) {
  const bool near = at.piece == Piece::kNear || at.piece == Piece::kKept;
  const int32_t cache = near ? op_.near : op_.cache;
  const backend::StepCache& list = ListOf(block.sequence, cache);
  args->kv = pool(cache).layout();
  args->chunks = pool(cache).Head(rank, op_.layer, kv_head);
  args->chunk_stride = pool(cache).chunk_stride();
  args->page_ids = at.piece == Piece::kKept ? list.kept.data() : list.pages.data();
  args->first_page = at.piece == Piece::kKept ? 0 : list.first_page;
  args->begin = at.begin;
  args->end = at.begin + kAttentionSplit;
}

void Attend::FillQueries(int32_t rank, const AttendBlock& block, int32_t kv_head, uint32_t first,
                         uint32_t split, int worker, AttendArgs* args) {
  const Piece piece = plan_.PieceOf(block, split).piece;
  for (int32_t i = 0; i < args->queries; ++i) {
    const auto [own, row, head] = QueryAt(rank, block, kv_head, first + static_cast<uint32_t>(i));
    args->q[i] = ws_.Row(own, op_.qkv, row) + head * key_dim_;
    std::tie(args->first[i], args->visible[i]) = plan_.Seen(piece, ws_.step().rows[row].position);
    if (plan_.store_parts) {
      const int64_t part = plan_.PartOf(block, row, head) + split;
      args->out[i] = plan_.part(own, part);
      args->max_sum[i] = plan_.part_max_sum(own, part);
      continue;
    }
    args->out[i] = Alone(block) ? Out(own, row, head) : plan_.own_part(worker, i);
    args->max_sum[i] = plan_.own_max_sum(worker, i);
  }
}

// One item: some heads of a row. Behind a million tokens each head has two thousand parts, and workers without an item wait.
class AttendMerge : public Attention {
 public:
  AttendMerge(const backend::AttentionOp& op, Workspace* ws) : Attention(op, ws) {}

  uint32_t Open() override {
    if (!plan_.store_parts) return 0;
    uint32_t splits = 1;
    for (const AttendBlock& block : plan_.blocks()) splits = std::max(splits, block.splits);
    heads_an_item_ = std::clamp<int64_t>(kPartsAnItem / splits, 1, heads_);
    items_a_row_ = DivideUp(static_cast<uint64_t>(heads_), static_cast<uint64_t>(heads_an_item_));
    return RowItems() * items_a_row_;
  }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item / items_a_row_);
    const uint32_t row = static_cast<uint32_t>(RowOf(item / items_a_row_));
    const absl::Span<const AttendBlock> blocks = plan_.blocks();
    const AttendBlock* block =
        std::upper_bound(blocks.begin(), blocks.end(), row,
                         [](uint32_t r, const AttendBlock& b) { return r < b.first_row; }) -
        1;
    const int64_t begin = int64_t{item % items_a_row_} * heads_an_item_;
    const int64_t end = std::min(heads_, begin + heads_an_item_);
    for (int64_t head = begin; head < end; ++head) MergeHead(rank, row, head, *block);
  }

 private:
  static constexpr int64_t kPartsAnItem = 64;  // some microseconds

  void MergeHead(int32_t rank, uint32_t row, int64_t head, const AttendBlock& block) {
    float running[2];
    Empty(running);
    const int64_t first = plan_.PartOf(block, row, head);
    int64_t into = first;  // the first of kMergedSplits takes the others
    for (uint32_t split = 0; split < block.splits; ++split) {
      float* const together = plan_.part(rank, into);
      float* const of_together = plan_.part_max_sum(rank, into);
      if (into != first + split) Merge(plan_.part(rank, first + split), plan_.part_max_sum(rank, first + split), together, of_together);
      if (!plan_.EndsMerged(block, split)) continue;
      Merge(together, of_together, Out(rank, row, head), running);
      into = first + split + 1;
    }
    FinishMerged(rank, row, head, running);
  }

  int64_t heads_an_item_ = 1;
  uint32_t items_a_row_ = 1;
};

}  // namespace

void AddPhases(const backend::AttentionOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<AttendPrepare>(op, ws);
  phases->Add<Attend>(op, ws);
  phases->Add<AttendMerge>(op, ws);
}

}  // namespace mainarch::cpu
