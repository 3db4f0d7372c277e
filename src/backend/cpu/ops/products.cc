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

class NormRows : public Phase {
 public:
  NormRows(const Product& op, Workspace* ws) : Phase(ws), op_(op), rounds_(ws->UsesBF16(op.w)) {}

  uint32_t Open() override { return ws_.rows() <= kMaxBlockRows ? 0 : RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item), stride = ws_.hidden_stride;
    float* out = ws_.NormOf(rank, row);
    ws_.kernels.rms_norm(ws_.Row(rank, ws_.program.x, row), ws_.Vector(rank, op_.norm),
                         ws_.program.rms_eps, ws_.program.hidden, out);
    if (rounds_) ws_.kernels.to_bf16(out, ws_.Rounded(rank) + row * stride, stride);
  }

 private:
  const Product op_;
  const bool rounds_;
};

class RoundRows : public Phase {
 public:
  RoundRows(const Product& op, Workspace* ws) : Phase(ws), op_(op) {}

  uint32_t Open() override { return ws_.rows() <= kMaxBlockRows ? 0 : RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item), width = ws_.SlotStride(op_.in);
    ws_.kernels.to_bf16(ws_.Row(rank, op_.in, row), ws_.Rounded(rank) + row * width, width);
  }

 private:
  const Product op_;
};

// One item: some panels of one rank.
class Multiply : public Phase {
 public:
  Multiply(const Product& op, Workspace* ws)
      : Phase(ws),
        op_(op),
        rounds_(ws->UsesBF16(op.w)),
        width_(op.in == backend::kNone ? ws->hidden_stride : ws->SlotStride(op.in)),
        most_panels_(ws->MostPanels(op.w)) {}

  uint32_t Open() override {
    item_panels_ = ws_.ItemPanels(most_panels_);
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
    ws_.RunPanels(rank, op_.w, 0, begin, end, ws_.rows(), then, rounds_,
                  ws_.PanelAt(rank, op_.w, 0, end), scratch,
                  rounds_ ? nullptr : ws_.ColumnsOf(ws_.rows(), width_, tag, scratch));
  }

 private:
  void FillRows(int32_t rank, uint64_t tag, Worker* scratch) {
    const bool many = ws_.rows() > kMaxBlockRows;
    const bool fill = rounds_ && !many && scratch->x16_tag != tag;
    uint16_t* rounded = many ? ws_.Rounded(rank) : scratch->x16;
    for (int64_t row = 0; row < ws_.rows(); ++row) {
      scratch->out[row] = ws_.Row(rank, op_.out, row);
      uint16_t* row16 = rounded + row * width_;
      scratch->rows16[row] = row16;
      if (rounds_ && !fill) continue;
      scratch->x[row] = op_.in != backend::kNone
                            ? ws_.Row(rank, op_.in, row)
                            : ws_.NormRow(rank, tag, op_.norm, nullptr, ws_.rows(), row, scratch);
      if (fill) ws_.kernels.to_bf16(scratch->x[row], row16, width_);
    }
    if (fill) scratch->x16_tag = tag;
  }

  const Product op_;
  const bool rounds_;
  const int64_t width_, most_panels_;
  // Of the step: panels of an item, items of a rank.
  uint32_t item_panels_ = 0;
  uint32_t rank_items_ = 0;
};

void Add(const Product& op, Workspace* ws, PhaseList* phases) {
  if (op.in == backend::kNone) {
    phases->Add<NormRows>(op, ws);
  } else if (ws->UsesBF16(op.w)) {
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
