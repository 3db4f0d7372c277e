// SPDX-License-Identifier: MIT
//
// Heads from one width to another, normed on the way.
#include <algorithm>
#include <cstring>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

// One item: a row of a rank.
class ResizeHeads : public Phase {
 public:
  ResizeHeads(const backend::ResizeHeadsOp& op, Workspace* ws)
      : Phase(ws),
        op_(op),
        count_(ws->program.buffers[static_cast<size_t>(op.in)].width / op.from),
        kept_(std::min(op.from, op.to)) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    const float* from = ws_.Row(rank, op_.in, row);
    float* to = ws_.Row(rank, op_.out, row);
    const float* const q_norm = ws_.Vector(rank, op_.q_norm);
    const float* const k_norm = ws_.Vector(rank, op_.k_norm);
    for (int64_t head = 0; head < count_; ++head, from += op_.from, to += op_.to) {
      const float* norm = head < op_.heads ? q_norm : head < op_.heads + op_.kv_heads ? k_norm : nullptr;
      if (norm != nullptr) {
        ws_.kernels.rms_norm(from, norm, ws_.program.rms_eps, kept_, to);
      } else {
        std::memcpy(to, from, static_cast<size_t>(kept_) * sizeof(float));
      }
      // In each step: where a cache turns heads, attention has turned these in place.
      std::fill(to + kept_, to + op_.to, 0.0f);
    }
  }

 private:
  const backend::ResizeHeadsOp op_;
  const int64_t count_, kept_;
};

}  // namespace

void AddPhases(const backend::ResizeHeadsOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<ResizeHeads>(op, ws);
}

}  // namespace mainarch::cpu
