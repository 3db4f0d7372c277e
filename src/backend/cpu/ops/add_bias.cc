// SPDX-License-Identifier: MIT
//
// A bias in every row. One item: a row of a rank.
#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

class AddBias : public Phase {
 public:
  AddBias(const backend::AddBiasOp& op, Workspace* ws)
      : Phase(ws), op_(op), width_(ws->program.buffers[static_cast<size_t>(op.x)].width) {}

  uint32_t Open() override { return RowItems(); }

  // The kernel goes by blocks of 16: behind its end a vector is zeros up to there.
  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const float* bias = ws_.Vector(rank, op_.bias);
    ws_.kernels.add_tree(ws_.Row(rank, op_.x, RowOf(item)), &bias, 1, width_);
  }

 private:
  const backend::AddBiasOp op_;
  const int64_t width_;
};

}  // namespace

void AddPhases(const backend::AddBiasOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<AddBias>(op, ws);
}

}  // namespace mainarch::cpu
