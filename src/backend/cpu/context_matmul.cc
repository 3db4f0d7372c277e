// SPDX-License-Identifier: MIT
//
// Embedding, norms, matrix products, all-reduce, logits.
#include <algorithm>
#include <cstring>

#include "backend/cpu/context.h"

namespace mainarch::cpu {
namespace {

// Panels of one item: even, for gate-up pairs; few enough that a late worker's share can be taken. Of
// many rows fewer: the last item of a phase is what others wait for.
constexpr uint32_t kMaxItemPanels = 8;
constexpr uint32_t kManyRowsItemPanels = 4;
constexpr uint32_t kItemsPerWorker = 4;

void LoadTableRow(const Kernels& kernels, const quant::Matrix& table, int64_t row, float* out) {
  const uint8_t* src = table.data.data() + row * quant::RowBytes(table.format, table.cols);
  switch (table.format) {
    case quant::Format::kBF16: return kernels.load_bf16(src, out, table.cols);
    case quant::Format::kF16: return kernels.load_f16(src, out, table.cols);
    default: return quant::DecodeRow(table, row, 0, table.cols, out);
  }
}

}  // namespace

void CpuContext::RunEmbed(const backend::EmbedOp& op, uint32_t item) {
  const int32_t rank = static_cast<int32_t>(item / rows_);
  const int64_t row = item % rows_;
  const quant::Matrix& table = program_.weights[static_cast<size_t>(op.table)].sources[0];
  LoadTableRow(kernels_, table, step_->rows[static_cast<size_t>(row)].token, Row(rank, op.x, row));
}

void CpuContext::RunNorm(const backend::Op& op, uint32_t item) {
  const int32_t rank = static_cast<int32_t>(item / rows_);
  const int64_t row = item % rows_;
  float* out = norm_[static_cast<size_t>(rank)] + row * hidden_stride_;
  backend::WeightId norm;
  if (const auto* router = std::get_if<backend::RouterOp>(&op)) {
    norm = router->norm;
    out = Row(rank, router->h, row);
  } else {
    norm = PlanOf(op).norm;
  }
  kernels_.rms_norm(Row(rank, program_.x, row), model_->weight(rank, norm).vector,
                    program_.rms_eps, program_.hidden, out);
  if (std::holds_alternative<backend::RouterOp>(op) || !UsesBF16(PlanOf(op).w)) return;
  kernels_.to_bf16(out, rounded_[static_cast<size_t>(rank)] + row * hidden_stride_, hidden_stride_);
}

void CpuContext::RunRound(const backend::Op& op, uint32_t item) {
  const int32_t rank = static_cast<int32_t>(item / rows_);
  const int64_t row = item % rows_;
  const backend::BufferId in = PlanOf(op).in;
  const int64_t width = SlotStride(in);
  kernels_.to_bf16(Row(rank, in, row), rounded_[static_cast<size_t>(rank)] + row * width, width);
}

CpuContext::MatmulPlan CpuContext::PlanOf(const backend::Op& op) const {
  if (const auto* o = std::get_if<backend::NormMatmulOp>(&op)) {
    return {o->w, -1, o->norm, o->out, Epilogue::kStore};
  }
  if (const auto* o = std::get_if<backend::NormGateUpOp>(&op)) {
    return {o->w, -1, o->norm, o->act, Epilogue::kGateUp};
  }
  if (const auto* o = std::get_if<backend::MatmulAddOp>(&op)) {
    return {o->w, o->in, -1, o->x, Epilogue::kAdd};
  }
  const auto& o = std::get<backend::MatmulOp>(op);
  return {o.w, o.in, -1, o.partial, Epilogue::kStore};
}

uint32_t CpuContext::ItemPanels(int64_t panels) const {
  // Alone a worker takes as much as it can: an item has its price, and nobody is there to take one over.
  const int64_t items = team_.workers() == 1 ? 1 : int64_t{kItemsPerWorker} * team_.workers();
  const int64_t wanted = panels * ranks_ / items;
  const int64_t most = rows_ > kMaxBlockRows ? kManyRowsItemPanels : kMaxItemPanels;
  const uint32_t even = static_cast<uint32_t>(std::clamp<int64_t>(wanted, 2, most)) & ~1u;
  // Never more items than the team can count.
  const int64_t least = panels * ranks_ / Team::kMaxItems + 1;
  return std::max(even, static_cast<uint32_t>((least + 1) & ~int64_t{1}));
}

// Shards may be uneven: of the rank that has most.
int64_t CpuContext::MostPanels(backend::WeightId w) const {
  int64_t most = 0;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    most = std::max(most, model_->weight(rank, w).plans[0].panels);
  }
  return most;
}

uint32_t CpuContext::MatmulItems(const MatmulPlan& plan) {
  const int64_t panels = MostPanels(plan.w);
  item_panels_ = ItemPanels(panels);
  rank_items_ = static_cast<uint32_t>((panels + item_panels_ - 1) / item_panels_);
  return static_cast<uint32_t>(ranks_) * rank_items_;
}

bool CpuContext::UsesBF16(backend::WeightId w) const {
  return bf16_ && HasBF16Dot(model_->weight(0, w).panels[0].format);
}

// Names what a worker's scratch was filled for.
uint64_t CpuContext::TagOf(uint32_t phase, int32_t rank) const {
  return (step_number_ * phases_.size() + phase) * static_cast<uint64_t>(ranks_) +
         static_cast<uint64_t>(rank) + 1;
}

// The normalised row `row` of `rows` (all rows of the step when null). Few rows: made once a worker,
// into its scratch, so that no phase is spent on it. Many: norm_ holds them.
const float* CpuContext::NormRow(int32_t rank, uint32_t phase, backend::WeightId norm,
                                 const uint32_t* rows, int64_t count, int64_t row,
                                 Worker* scratch) {
  if (count > kMaxBlockRows) return norm_[static_cast<size_t>(rank)] + row * hidden_stride_;
  const uint64_t tag = TagOf(phase, rank);
  if (scratch->norm_tag != tag) {
    for (int64_t i = 0; i < count; ++i) {
      const float* x = Row(rank, program_.x, rows == nullptr ? i : rows[i]);
      kernels_.rms_norm(x, model_->weight(rank, norm).vector, program_.rms_eps, program_.hidden,
                        scratch->norm + i * hidden_stride_);
    }
    scratch->norm_tag = tag;
  }
  return scratch->norm + row * hidden_stride_;
}

// Panel `panel` of a group in memory, or null behind the last and for weights that are not there yet.
const uint8_t* CpuContext::PanelAt(int32_t rank, backend::WeightId w, size_t group,
                                   int64_t panel) const {
  const RankWeight& weight = model_->weight(rank, w);
  if (panel >= weight.plans[group].panels || !weight.ready.load(std::memory_order_acquire)) {
    return nullptr;
  }
  return weight.panels[group].data + static_cast<size_t>(panel) * weight.panels[group].stride;
}

// scratch->x by columns, if that is of use: made once a worker for a tag that is not 0.
const float* CpuContext::ColumnsOf(int64_t rows, int64_t width, uint64_t tag,
                                   Worker* scratch) const {
  if (rows <= 2 || rows > kMaxBlockRows || kernels_.by_columns == nullptr) return nullptr;
  if (tag == 0 || scratch->columns_tag != tag) {
    kernels_.by_columns(scratch->x, rows, width, scratch->columns);
    scratch->columns_tag = tag;
  }
  return scratch->columns;
}

// scratch->x (for bf16, rows16) and scratch->out hold the rows; out[i] points at where panel 0 would write.
void CpuContext::RunPanels(int32_t rank, backend::WeightId w, size_t group, int64_t begin,
                           int64_t end, int64_t rows, Epilogue epilogue, bool bf16,
                           const uint8_t* after, Worker* scratch, const float* columns) {
  const RankWeight& weight = model_->weight(rank, w);
  MatmulArgs args;
  args.w = weight.panels[group];
  args.x = scratch->x;
  args.out = scratch->out;
  args.rows = rows;
  args.epilogue = epilogue;
  args.x16 = scratch->rows16;
  args.decoded = scratch->decoded;
  args.columns = columns;
  const auto run = bf16 ? kernels_.matmul_bf16 : kernels_.matmul;
  if (weight.ready.load(std::memory_order_acquire)) {
    args.panel_begin = begin;
    args.panel_end = end;
    args.after = after;
    run(args);
    return;
  }
  // Pack a few panels at a time; they stand at index 0 on, so the rows' starts move instead.
  args.w.data = scratch->panels;
  const int64_t lanes = epilogue == Epilogue::kGateUp ? kLanes / 2 : kLanes;
  int64_t moved = 0;
  for (int64_t at = begin; at < end; at += kMaxItemPanels) {
    const int64_t count = std::min<int64_t>(kMaxItemPanels, end - at);
    for (int64_t p = 0; p < count; ++p) {
      PackPanel(weight.plans[group], at + p, scratch->panels + static_cast<size_t>(p) * args.w.stride);
    }
    for (int64_t i = 0; i < rows; ++i) scratch->out[i] += (at - moved) * lanes;
    moved = at;
    args.panel_begin = 0;
    args.panel_end = count;
    run(args);
  }
}

void CpuContext::RunMatmul(const MatmulPlan& plan, uint32_t phase, uint32_t item, int worker) {
  const int32_t rank = static_cast<int32_t>(item / rank_items_);
  const int64_t panels = model_->weight(rank, plan.w).plans[0].panels;
  const int64_t begin = int64_t{item % rank_items_} * item_panels_;
  if (begin >= panels) return;
  Worker* scratch = &workers_[static_cast<size_t>(worker)];
  const bool bf16 = UsesBF16(plan.w);
  const int64_t width = plan.in >= 0 ? SlotStride(plan.in) : hidden_stride_;
  // Few rows are rounded by every worker for itself; many have been, in a phase of their own.
  const bool many = rows_ > kMaxBlockRows;
  const bool fill = bf16 && !many && scratch->x16_tag != TagOf(phase, rank);
  uint16_t* rounded = many ? rounded_[static_cast<size_t>(rank)] : scratch->x16;
  for (int64_t row = 0; row < rows_; ++row) {
    scratch->out[row] = Row(rank, plan.out, row);
    uint16_t* row16 = rounded + row * width;
    scratch->rows16[row] = row16;
    if (bf16 && !fill) continue;
    scratch->x[row] = plan.in >= 0 ? Row(rank, plan.in, row)
                                   : NormRow(rank, phase, plan.norm, nullptr, rows_, row, scratch);
    if (fill) kernels_.to_bf16(scratch->x[row], row16, width);
  }
  if (fill) scratch->x16_tag = TagOf(phase, rank);
  const int64_t end = std::min(panels, begin + item_panels_);
  RunPanels(rank, plan.w, 0, begin, end, rows_, plan.epilogue, bf16,
            PanelAt(rank, plan.w, 0, end), scratch,
            bf16 ? nullptr : ColumnsOf(rows_, width, TagOf(phase, rank), scratch));
}

void CpuContext::RunAllReduce(const backend::AllReduceAddOp& op, uint32_t item) {
  const int32_t rank = static_cast<int32_t>(item / rows_);
  const int64_t row = item % rows_;
  const float* parts[backend::kSplitParts];
  for (int32_t r = 0; r < ranks_; ++r) parts[r] = Row(r, op.partial, row);
  kernels_.add_tree(Row(rank, op.x, row), parts, ranks_, SlotStride(op.x));
}

uint32_t CpuContext::LogitsItems(const backend::LogitsOp& op) const {
  if (step_->logit_rows.empty()) return 0;
  uint32_t items = 0;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const int64_t panels = model_->weight(rank, op.w).plans[0].panels;
    const uint32_t each = ItemPanels(panels);
    items += static_cast<uint32_t>((panels + each - 1) / each);
  }
  return items;
}

void CpuContext::RunLogits(const backend::LogitsOp& op, uint32_t phase, uint32_t item, int worker) {
  int32_t rank = 0;
  int64_t panels, first_row = 0;
  uint32_t each;
  while (true) {
    panels = model_->weight(rank, op.w).plans[0].panels;
    each = ItemPanels(panels);
    const uint32_t chunks = static_cast<uint32_t>((panels + each - 1) / each);
    if (item < chunks) break;
    item -= chunks;
    const backend::WeightSlice& slice =
        program_.weights[static_cast<size_t>(op.w)].ranks[static_cast<size_t>(rank)][0];
    first_row += slice.row_end - slice.row_begin;
    ++rank;
  }
  Worker* scratch = &workers_[static_cast<size_t>(worker)];
  const int64_t begin = int64_t{item} * each;
  const int64_t end = std::min(panels, begin + each);
  // Rows in blocks that fit the worker's scratch, so that no separate phase normalises them.
  const int64_t total = static_cast<int64_t>(step_->logit_rows.size());
  const bool bf16 = UsesBF16(op.w);
  for (int64_t first = 0; first < total; first += kMaxBlockRows) {
    const int64_t count = std::min<int64_t>(kMaxBlockRows, total - first);
    if (total > kMaxBlockRows) scratch->norm_tag = 0;
    for (int64_t i = 0; i < count; ++i) {
      scratch->x[i] = NormRow(rank, phase, op.norm, step_->logit_rows.data() + first, count, i,
                              scratch);
      scratch->out[i] = logits_ + (first + i) * vocab_stride_ + first_row;
      if (!bf16) continue;
      scratch->rows16[i] = scratch->x16 + i * hidden_stride_;
      kernels_.to_bf16(scratch->x[i], scratch->x16 + i * hidden_stride_, hidden_stride_);
    }
    const uint64_t tag = total > kMaxBlockRows ? 0 : TagOf(phase, rank);
    RunPanels(rank, op.w, 0, begin, end, count, Epilogue::kStore, bf16,
              PanelAt(rank, op.w, 0, end), scratch,
              bf16 ? nullptr : ColumnsOf(count, hidden_stride_, tag, scratch));
  }
  if (total > kMaxBlockRows) scratch->norm_tag = 0;
}

}  // namespace mainarch::cpu
