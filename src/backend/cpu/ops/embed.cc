// SPDX-License-Identifier: MIT
//
// Embedding. One item: a row of a rank.
#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

class Embed : public Phase {
 public:
  Embed(const backend::EmbedOp& op, Workspace* ws) : Phase(ws), op_(op) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int64_t row = RowOf(item);
    const quant::Matrix& table = ws_.program.weights[static_cast<size_t>(op_.table)].sources[0];
    const uint32_t token = ws_.step().rows[static_cast<size_t>(row)].token;
    float* out = ws_.Row(RankOf(item), op_.x, row);
    const uint8_t* src = quant::RowData(table, token);
    switch (table.format) {
      case quant::Format::kBF16:
        ws_.kernels.load_bf16(src, out, table.cols);
        break;
      case quant::Format::kF16:
        ws_.kernels.load_f16(src, out, table.cols);
        break;
      default:
        quant::DecodeRow(table, token, 0, table.cols, out);
    }
    if (op_.scale != 1) ws_.kernels.scale(out, op_.scale, table.cols);
  }

 private:
  const backend::EmbedOp op_;
};

}  // namespace

void AddPhases(const backend::EmbedOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Embed>(op, ws);
}

}  // namespace mainarch::cpu
