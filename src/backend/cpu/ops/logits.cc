// SPDX-License-Identifier: MIT
//
// Logits of the rows that ask for them. One item: some panels of one rank.
#include <algorithm>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

class Logits : public Phase {
 public:
  Logits(const backend::LogitsOp& op, Workspace* ws)
      : Phase(ws), op_(op), bf16_(ws->UsesBF16(op.w)) {}

  uint32_t Open() override {
    if (ws_.step().logit_rows.empty()) return 0;
    uint32_t items = 0;
    for (int32_t rank = 0; rank < ws_.ranks; ++rank) items += ItemsOf(rank);
    return items;
  }

  void Run(uint32_t item, int worker) override {
    int32_t rank = 0;
    int64_t first_row = 0;
    for (uint32_t items = ItemsOf(rank); item >= items; items = ItemsOf(++rank)) {
      item -= items;
      const backend::WeightSlice& slice =
          ws_.program.weights[static_cast<size_t>(op_.w)].ranks[static_cast<size_t>(rank)][0];
      first_row += slice.row_end - slice.row_begin;
    }
    const int64_t panels = PanelsOf(rank), each = ws_.ItemPanels(panels, /*pairs=*/false);
    const int64_t begin = int64_t{item} * each;
    RunItem(rank, begin, std::min(panels, begin + each), first_row, ws_.worker(worker));
  }

 private:
  int64_t PanelsOf(int32_t rank) const { return ws_.weight(rank, op_.w).plans[0].panels; }
  uint32_t ItemsOf(int32_t rank) const {
    const int64_t panels = PanelsOf(rank), each = ws_.ItemPanels(panels, /*pairs=*/false);
    return static_cast<uint32_t>((panels + each - 1) / each);
  }

  // Rows in blocks that fit the worker's scratch, so that no separate phase normalises them.
  void RunItem(int32_t rank, int64_t begin, int64_t end, int64_t first_row, Worker* scratch) {
    const absl::Span<const uint32_t> rows = ws_.step().logit_rows;
    const int64_t total = static_cast<int64_t>(rows.size()), width = ws_.hidden_stride;
    const bool many = total > kMaxBlockRows;
    const Panels* const int8 = ws_.UsesInt8(rank, op_.w);
    const bool rounds = bf16_ || int8 != nullptr;
    for (int64_t first = 0; first < total; first += kMaxBlockRows) {
      const int64_t count = std::min<int64_t>(kMaxBlockRows, total - first);
      if (many) scratch->norm_tag = scratch->x8_tag = scratch->x16_tag = 0;
      const bool fill16 = bf16_ && scratch->x16_tag != Tag(rank);
      const bool fill8 = int8 != nullptr && scratch->x8_tag != Tag(rank);
      for (int64_t i = 0; i < count; ++i) {
        scratch->x[i] =
            ws_.NormRow(rank, Tag(rank), op_.norm, rows.data() + first, count, i, scratch);
        scratch->out[i] = ws_.logits(first + i) + first_row;
        if (bf16_) {
          scratch->rows16[i] = scratch->x16 + i * width;
          if (fill16) ws_.kernels.to_bf16(scratch->x[i], scratch->x16 + i * width, width);
        }
        if (int8 == nullptr) continue;
        scratch->rows8[i] = scratch->x8 + i * Int8Stride(*int8);
        if (fill8) ws_.kernels.to_int8(scratch->x[i], *int8, scratch->x8 + i * Int8Stride(*int8));
      }
      if (fill16) {
        scratch->x16_tag = Tag(rank);
        scratch->floats_made = false;
      }
      if (int8 != nullptr) scratch->x8_tag = Tag(rank);
      ws_.RunPanels(rank, op_.w, 0, begin, end, count, After(), /*rounded=*/true,
                    ws_.PanelAt(rank, op_.w, 0, end), scratch,
                    rounds ? nullptr : ws_.ColumnsOf(count, width, many ? 0 : Tag(rank), scratch));
    }
    if (many) scratch->norm_tag = scratch->x8_tag = scratch->x16_tag = 0;
  }

  const backend::LogitsOp op_;
  const bool bf16_;
};

}  // namespace

void AddPhases(const backend::LogitsOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Logits>(op, ws);
}

}  // namespace mainarch::cpu
