// SPDX-License-Identifier: MIT
//
// Rows kept for another context's steps, and taken there. One item: a row of a rank.
#include <cstring>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

class Tap : public Phase {
 public:
  Tap(const backend::TapOp& op, Workspace* ws) : Phase(ws), op_(op) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    std::memcpy(ws_.Row(RankOf(item), op_.out, RowOf(item)),
                ws_.Row(RankOf(item), op_.x, RowOf(item)),
                static_cast<size_t>(ws_.SlotStride(op_.out)) * sizeof(float));
  }

 private:
  const backend::TapOp op_;
};

class Input : public Phase {
 public:
  Input(const backend::InputOp& op, Workspace* ws)
      : Phase(ws), op_(op), tap_(ws->source->program.taps[static_cast<size_t>(op.tap)]) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const uint32_t from = ws_.step().inputs[static_cast<size_t>(RowOf(item))];
    std::memcpy(ws_.Row(RankOf(item), op_.x, RowOf(item)),
                ws_.source->Row(RankOf(item), tap_, from),
                static_cast<size_t>(ws_.SlotStride(op_.x)) * sizeof(float));
  }

 private:
  const backend::InputOp op_;
  const backend::BufferId tap_;  // of the source's Program
};

}  // namespace

void AddPhases(const backend::TapOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Tap>(op, ws);
}
void AddPhases(const backend::InputOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Input>(op, ws);
}

}  // namespace mainarch::cpu
