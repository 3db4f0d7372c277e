// SPDX-License-Identifier: MIT
//
// Mixture of experts: router, top-k, and the routed experts, without sorting or permuting rows. A
// token's experts are kept in ascending id, which is the order they are added in.
#include <algorithm>

#include "backend/cpu/context.h"

namespace mainarch::cpu {
namespace {

constexpr uint32_t kItemsPerWorker = 4;

// The k largest of n values into ids, ascending; ties go to the lowest id.
void TopK(const float* p, int32_t n, int32_t k, int32_t* ids) {
  int32_t count = 0;  // ids[0 .. count) by falling value, first id first among equals
  for (int32_t id = 0; id < n; ++id) {
    if (count == k && !(p[id] > p[ids[k - 1]])) continue;
    int32_t at = count < k ? count++ : k - 1;
    for (; at > 0 && p[id] > p[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = id;
  }
  std::sort(ids, ids + k);
}

}  // namespace

// Panels of the router that one item takes of one row. Many rows are items enough; few rows are cut so
// that every worker has one, into even numbers of panels.
int64_t CpuContext::RouterItemPanels(const backend::RouterOp& op) const {
  const int64_t panels = model_->weight(0, op.w).plans[0].panels;
  const int64_t chunks = (team_.workers() + rows_ * ranks_ - 1) / (rows_ * ranks_);
  return ((panels + chunks - 1) / chunks + 1) / 2 * 2;
}

uint32_t CpuContext::RouterItems(const backend::RouterOp& op) const {
  const int64_t panels = model_->weight(0, op.w).plans[0].panels, each = RouterItemPanels(op);
  return static_cast<uint32_t>(rows_ * ranks_ * ((panels + each - 1) / each));
}

// One item: some panels of one row's router logits.
void CpuContext::RunRouterMatmul(const backend::RouterOp& op, uint32_t item, int worker) {
  const int64_t panels = model_->weight(0, op.w).plans[0].panels, each = RouterItemPanels(op);
  const int64_t chunks = (panels + each - 1) / each;
  const int32_t rank = static_cast<int32_t>(item / (rows_ * chunks));
  const int64_t row = item / chunks % rows_;
  const int64_t begin = item % chunks * each;
  Worker* scratch = &workers_[static_cast<size_t>(worker)];
  const int64_t stride = (program_.experts + kLanes - 1) / kLanes * kLanes;
  scratch->x[0] = Row(rank, op.h, row);
  scratch->out[0] = router_logits_[static_cast<size_t>(rank)] + row * stride;
  RunPanels(rank, op.w, 0, begin, std::min(panels, begin + each), 1, Epilogue::kStore,
            /*bf16=*/false, nullptr, scratch);
}

void CpuContext::RunTopK(const backend::RouterOp& op, uint32_t item) {
  const int32_t rank = static_cast<int32_t>(item / rows_);
  const int64_t row = item % rows_;
  const int32_t k = program_.experts_per_token;
  const int64_t stride = (program_.experts + kLanes - 1) / kLanes * kLanes;
  float* p = router_logits_[static_cast<size_t>(rank)] + row * stride;
  kernels_.softmax(p, program_.experts);
  int32_t* ids = IdRow(rank, op.ids, row);
  float* weights = Row(rank, op.weights, row);
  TopK(p, program_.experts, k, ids);
  float sum = 0;
  for (int32_t i = 0; i < k; ++i) sum += weights[i] = p[ids[i]];
  if (!op.renormalise) return;
  for (int32_t i = 0; i < k; ++i) weights[i] /= sum;
}

// Which rows go to which expert, from rank 0's ids (every rank's are the same).
void CpuContext::ListExperts(const backend::ExpertsGateUpOp& op) {
  const int32_t k = program_.experts_per_token;
  std::fill(expert_offsets_.begin(), expert_offsets_.end(), 0);
  for (int64_t row = 0; row < rows_; ++row) {
    const int32_t* ids = IdRow(0, op.ids, row);
    for (int32_t slot = 0; slot < k; ++slot) ++expert_offsets_[static_cast<size_t>(ids[slot]) + 1];
  }
  active_count_ = 0;
  for (int32_t e = 0; e < program_.experts; ++e) {
    const size_t at = static_cast<size_t>(e);
    if (expert_offsets_[at + 1] > 0) active_experts_[static_cast<size_t>(active_count_++)] = e;
    expert_offsets_[at + 1] += expert_offsets_[at];
  }
  // Fill each expert's list from its start; the starts move up and are moved back after.
  for (int64_t row = 0; row < rows_; ++row) {
    const int32_t* ids = IdRow(0, op.ids, row);
    for (int32_t slot = 0; slot < k; ++slot) {
      int32_t& at = expert_offsets_[static_cast<size_t>(ids[slot])];
      expert_entries_[static_cast<size_t>(at++)] = static_cast<int32_t>(row * k + slot);
    }
  }
  for (size_t e = static_cast<size_t>(program_.experts); e > 0; --e) {
    expert_offsets_[e] = expert_offsets_[e - 1];
  }
  expert_offsets_[0] = 0;
  // A narrow expert may leave nothing to some of the ranks.
  int64_t pairs = 1;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    pairs = std::max(pairs, model_->weight(rank, op.w).plans[0].panels / 2);
  }
  const int64_t wanted = int64_t{kItemsPerWorker} * team_.workers();
  expert_chunks_ = static_cast<uint32_t>(std::clamp<int64_t>(
      wanted / std::max<int64_t>(1, int64_t{active_count_} * ranks_) + 1, 1, pairs));
}

void CpuContext::RunExpertsGateUp(const backend::ExpertsGateUpOp& op, uint32_t phase, uint32_t item,
                                  int worker) {
  const uint32_t per_rank = static_cast<uint32_t>(active_count_) * expert_chunks_;
  const int32_t rank = static_cast<int32_t>(item / per_rank);
  const size_t expert =
      static_cast<size_t>(active_experts_[item % per_rank / expert_chunks_]);
  const int64_t chunk = item % expert_chunks_;
  const int64_t pairs = model_->weight(rank, op.w).plans[expert].panels / 2;
  const int64_t begin = pairs * chunk / expert_chunks_ * 2;
  const int64_t end = pairs * (chunk + 1) / expert_chunks_ * 2;
  Worker* scratch = &workers_[static_cast<size_t>(worker)];
  const int32_t k = program_.experts_per_token;
  const bool bf16 = UsesBF16(op.w);
  const int64_t width = SlotStride(op.h);
  if (bf16 && scratch->x16_tag != TagOf(phase, rank)) {
    kernels_.to_bf16(Row(rank, op.h, 0), scratch->x16, rows_ * width);
    scratch->x16_tag = TagOf(phase, rank);
  }
  int64_t rows = 0;
  for (int32_t i = expert_offsets_[expert]; i < expert_offsets_[expert + 1]; ++i, ++rows) {
    const int32_t entry = expert_entries_[static_cast<size_t>(i)];
    scratch->x[rows] = Row(rank, op.h, entry / k);
    scratch->rows16[rows] = scratch->x16 + entry / k * width;
    scratch->out[rows] = Row(rank, op.act, entry / k) + entry % k * SlotStride(op.act);
  }
  // The next item is the next chunk of this expert or the first of the next one.
  const uint8_t* after = PanelAt(rank, op.w, expert, end);
  const uint32_t next = item % per_rank / expert_chunks_ + 1;
  if (after == nullptr && next < static_cast<uint32_t>(active_count_)) {
    after = PanelAt(rank, op.w, static_cast<size_t>(active_experts_[next]), 0);
  }
  RunPanels(rank, op.w, expert, begin, end, rows, Epilogue::kGateUp, bf16, after, scratch);
}

// One item: kExpertPanels panels of the output, all active experts.
uint32_t CpuContext::ExpertsDownItems(const backend::ExpertsDownOp& op) const {
  return static_cast<uint32_t>((model_->weight(0, op.w).plans[0].panels + kExpertPanels - 1) /
                               kExpertPanels);
}

void CpuContext::RunExpertsDown(const backend::ExpertsDownOp& op, uint32_t phase, uint32_t item,
                                int worker) {
  const uint32_t items = ExpertsDownItems(op);
  const int32_t rank = static_cast<int32_t>(item / items);
  const RankWeight& weight = model_->weight(rank, op.w);
  Worker* scratch = &workers_[static_cast<size_t>(worker)];
  ExpertsDownArgs args;
  args.experts = weight.panels.data();
  args.panel_begin = int64_t{item % items} * kExpertPanels;
  args.panel_end = std::min<int64_t>(args.panel_begin + kExpertPanels, weight.plans[0].panels);
  args.active = active_experts_.data();
  args.active_count = active_count_;
  args.offsets = expert_offsets_.data();
  args.entries = expert_entries_.data();
  args.k = program_.experts_per_token;
  args.act = Row(rank, op.act, 0);
  args.act_stride = SlotStride(op.act);
  args.weights = Row(rank, op.weights, 0);
  args.weights_stride = SlotStride(op.weights);
  args.out = Row(rank, op.out, 0);
  args.out_stride = SlotStride(op.out);
  args.rows = rows_;
  args.add = op.add;
  args.first = args.last = true;
  args.scratch = scratch->experts;
  args.act16 = scratch->x16;
  const bool bf16 = UsesBF16(op.w);
  if (bf16 && scratch->x16_tag != TagOf(phase, rank)) {
    kernels_.to_bf16(args.act, scratch->x16, rows_ * args.k * args.act_stride);
    scratch->x16_tag = TagOf(phase, rank);
  }
  const auto run = bf16 ? kernels_.experts_down_bf16 : kernels_.experts_down;
  if (weight.ready.load(std::memory_order_acquire)) {
    run(args);
    return;
  }
  for (int32_t i = 0; i < active_count_; ++i) {
    const size_t expert = static_cast<size_t>(active_experts_[static_cast<size_t>(i)]);
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      PackPanel(weight.plans[expert], p,
                scratch->panels +
                    static_cast<size_t>(p - args.panel_begin) * weight.panels[expert].stride);
    }
    Panels one = weight.panels[expert];
    one.data = scratch->panels - static_cast<size_t>(args.panel_begin) * one.stride;
    args.experts = &one - expert;
    args.active = active_experts_.data() + i;
    args.active_count = 1;
    args.first = i == 0;
    args.last = i + 1 == active_count_;
    run(args);
  }
}

}  // namespace mainarch::cpu
