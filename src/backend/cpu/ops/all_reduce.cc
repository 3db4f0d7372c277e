// SPDX-License-Identifier: MIT
//
// All-reduce: the upper part of the fixed tree. One item: a row of a rank.
#include <algorithm>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

class AllReduceAdd : public Phase {
 public:
  AllReduceAdd(const backend::AllReduceAddOp& op, Workspace* ws) : Phase(ws), op_(op) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int64_t row = RowOf(item);
    const float* parts[backend::kSplitParts];
    for (int32_t r = 0; r < ws_.ranks; ++r) parts[r] = ws_.Row(r, op_.partial, row);
    float* x = ws_.Row(RankOf(item), op_.x, row);
    if (!op_.add) std::fill(x, x + ws_.SlotStride(op_.x), 0.0f);
    ws_.kernels.add_tree(x, parts, ws_.ranks, ws_.SlotStride(op_.x));
  }

 private:
  const backend::AllReduceAddOp op_;
};

}  // namespace

void AddPhases(const backend::AllReduceAddOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<AllReduceAdd>(op, ws);
}

}  // namespace mainarch::cpu
