// SPDX-License-Identifier: MIT
//
// Products with a weight, of x normalised or of a buffer. Few rows are normalised and rounded by every
// worker for itself; many have a phase of their own for either.
#include <algorithm>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

struct Product {
  backend::WeightId w;
  backend::BufferId in;    // kNone: the normalised x
  backend::WeightId norm;  // of x
  backend::BufferId out;
  Epilogue epilogue;
  backend::Activation activation = backend::Activation::kSilu;
  backend::WeightId gate_bias = backend::kNone;
  backend::WeightId up_bias = backend::kNone;
};

// Rows as products take them that round: one phase, of many rows.
class RoundedRows {
 public:
  RoundedRows(backend::WeightId w, Workspace* ws) : ws_(*ws), w_(w), bf16_(ws->UsesBF16(w)) {}

  bool any() const { return bf16_ || ws_.UsesInt8(0, w_) != nullptr; }
  // Row `row` of rank `rank` is x, `width` values.
  void Put(int32_t rank, int64_t row, const float* x, int64_t width) const {
    if (bf16_) ws_.kernels.to_bf16(x, ws_.Rounded(rank) + row * width, width);
    if (const Panels* panels = ws_.UsesInt8(rank, w_)) {
      ws_.kernels.to_int8(x, *panels, ws_.Rounded8(rank) + row * Int8Stride(*panels));
    }
  }

 private:
  const Workspace& ws_;
  const backend::WeightId w_;
  const bool bf16_;
};

class NormRows : public Phase {
 public:
  NormRows(const Product& op, Workspace* ws) : Phase(ws), op_(op), rounded_(op.w, ws) {}

  uint32_t Open() override { return ws_.rows() <= kMaxBlockRows ? 0 : RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    float* out = ws_.NormOf(rank, row);
    ws_.kernels.rms_norm(ws_.Row(rank, ws_.program.x, row), ws_.Vector(rank, op_.norm),
                         ws_.program.rms_eps, ws_.program.hidden, out);
    rounded_.Put(rank, row, out, ws_.hidden_stride);
  }

 private:
  const Product op_;
  const RoundedRows rounded_;
};

class RoundRows : public Phase {
 public:
  RoundRows(const Product& op, Workspace* ws) : Phase(ws), op_(op), rounded_(op.w, ws) {}

  uint32_t Open() override { return ws_.rows() <= kMaxBlockRows ? 0 : RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    rounded_.Put(rank, row, ws_.Row(rank, op_.in, row), ws_.SlotStride(op_.in));
  }

 private:
  const Product op_;
  const RoundedRows rounded_;
};

// One item: some panels of one rank.
class Multiply : public Phase {
 public:
  Multiply(const Product& op, Workspace* ws)
      : Phase(ws),
        op_(op),
        bf16_(ws->UsesBF16(op.w)),
        width_(op.in == backend::kNone ? ws->hidden_stride : ws->SlotStride(op.in)),
        most_panels_(ws->MostPanels(op.w)) {}

  uint32_t Open() override {
    item_panels_ = ws_.ItemPanels(most_panels_, op_.epilogue == Epilogue::kGateUp);
    rank_items_ = static_cast<uint32_t>((most_panels_ + item_panels_ - 1) / item_panels_);
    return static_cast<uint32_t>(ws_.ranks) * rank_items_;
  }

  void Run(uint32_t item, int worker) override {
    const int32_t rank = static_cast<int32_t>(item / rank_items_);
    const int64_t panels = ws_.weight(rank, op_.w).GroupPanels();
    const int64_t begin = int64_t{item % rank_items_} * item_panels_;
    if (begin >= panels) return;
    Worker* scratch = ws_.worker(worker);
    const uint64_t tag = Tag(rank);
    FillRows(rank, tag, scratch);
    const int64_t end = std::min(panels, begin + item_panels_);
    const After then = {op_.epilogue, op_.activation, ws_.Vector(rank, op_.gate_bias),
                        ws_.Vector(rank, op_.up_bias)};
    const bool rounds = bf16_ || ws_.UsesInt8(rank, op_.w) != nullptr;
    ws_.RunPanels(rank, op_.w, 0, begin, end, ws_.rows(), then, /*rounded=*/true,
                  ws_.PanelAt(rank, op_.w, 0, end), scratch,
                  rounds ? nullptr : ws_.ColumnsOf(ws_.rows(), width_, tag, scratch));
  }

 private:
  void FillRows(int32_t rank, uint64_t tag, Worker* scratch) {
    const bool many = ws_.rows() > kMaxBlockRows;
    const Panels* const int8 = ws_.UsesInt8(rank, op_.w);
    const bool fill16 = bf16_ && !many && scratch->x16_tag != tag;
    const bool fill8 = int8 != nullptr && !many && scratch->x8_tag != tag;
    uint16_t* rows16 = many ? ws_.Rounded(rank) : scratch->x16;
    uint8_t* rows8 = many ? ws_.Rounded8(rank) : scratch->x8;
    const int64_t stride8 = int8 == nullptr ? 0 : Int8Stride(*int8);
    for (int64_t row = 0; row < ws_.rows(); ++row) {
      scratch->out[row] = ws_.Row(rank, op_.out, row);
      scratch->rows16[row] = rows16 + row * width_;
      scratch->rows8[row] = rows8 + row * stride8;
      scratch->x[row] = op_.in != backend::kNone
                            ? ws_.Row(rank, op_.in, row)
                            : ws_.NormRow(rank, tag, op_.norm, nullptr, ws_.rows(), row, scratch);
      if (fill16) ws_.kernels.to_bf16(scratch->x[row], rows16 + row * width_, width_);
      if (fill8) ws_.kernels.to_int8(scratch->x[row], *int8, rows8 + row * stride8);
    }
    if (fill16) {
      scratch->x16_tag = tag;
      scratch->floats_made = false;
    }
    if (fill8) scratch->x8_tag = tag;
  }

  const Product op_;
  const bool bf16_;
  const int64_t width_, most_panels_;
  // Of the step: panels of an item, items of a rank.
  uint32_t item_panels_ = 0;
  uint32_t rank_items_ = 0;
};

void Add(const Product& op, Workspace* ws, PhaseList* phases) {
  if (op.in == backend::kNone) {
    phases->Add<NormRows>(op, ws);
  } else if (RoundedRows(op.w, ws).any()) {
    phases->Add<RoundRows>(op, ws);
  }
  phases->Add<Multiply>(op, ws);
}

}  // namespace

void AddPhases(const backend::NormMatmulOp& op, Workspace* ws, PhaseList* phases) {
  Add({op.w, backend::kNone, op.norm, op.out, Epilogue::kStore}, ws, phases);
}
void AddPhases(const backend::NormGateUpOp& op, Workspace* ws, PhaseList* phases) {
  Add({op.w, op.norm == backend::kNone ? op.x : backend::kNone, op.norm, op.act, Epilogue::kGateUp,
       op.activation, op.gate_bias, op.up_bias},
      ws, phases);
}
void AddPhases(const backend::MatmulAddOp& op, Workspace* ws, PhaseList* phases) {
  Add({op.w, op.in, backend::kNone, op.x, Epilogue::kAdd}, ws, phases);
}
void AddPhases(const backend::MatmulOp& op, Workspace* ws, PhaseList* phases) {
  Add({op.w, op.in, backend::kNone, op.partial, Epilogue::kStore}, ws, phases);
}

}  // namespace mainarch::cpu
