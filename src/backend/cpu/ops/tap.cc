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
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    float* const x = ws_.Row(rank, op_.x, row);
    const size_t bytes = static_cast<size_t>(ws_.SlotStride(op_.x)) * sizeof(float);
    if (const float* from = From(rank, row)) {
      std::memcpy(x, from, bytes);
    } else {
      std::memset(x, 0, bytes);
    }
    if (op_.cache != backend::kNone) Carry(rank, row);
  }

 private:
  // Null: zeros.
  const float* From(int32_t rank, int64_t row) const {
    const uint32_t from = ws_.step().inputs[static_cast<size_t>(row)];
    if (from == backend::kCarriedInput) {
      const uint32_t slot = CacheOf(op_, row).state_in;
      return slot == backend::kNoSlot ? nullptr : SlotAt(op_, rank, slot);
    }
    if ((from & backend::kOwnInput) == 0) return ws_.source->Row(rank, tap_, from);
    return ws_.Row(rank, ws_.program.taps[static_cast<size_t>(op_.own)],
                   from & ~backend::kOwnInput);
  }
  void Carry(int32_t rank, int64_t row) const {
    const absl::Span<const backend::StepRow> rows = ws_.step().rows;
    int64_t first = row;
    while (first > 0 && rows[static_cast<size_t>(first - 1)].sequence ==
                            rows[static_cast<size_t>(row)].sequence) {
      --first;
    }
    for (const backend::StateOut& out : CacheOf(op_, row).state_out) {
      if (out.row != row - first) continue;
      std::memcpy(SlotAt(op_, rank, out.slot), ws_.source->Row(rank, tap_, row),
                  static_cast<size_t>(ws_.program.buffers[static_cast<size_t>(op_.x)].width) *
                      sizeof(float));
    }
  }

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
