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
        width_(ws->program.buffers[static_cast<size_t>(op.in)].width) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    const float* from = ws_.Row(rank, op_.in, row);
    float* to = ws_.Row(rank, op_.out, row);
    const float* const q_norm = ws_.Vector(rank, op_.q_norm);
    const float* const k_norm = ws_.Vector(rank, op_.k_norm);
    const float* const end = from + width_;
    for (int64_t head = 0; head < op_.heads; ++head) OneHead(q_norm, op_.from, op_.to, &from, &to);
    for (int64_t head = 0; head < op_.kv_heads; ++head) OneHead(k_norm, op_.from, op_.to, &from, &to);
    const int64_t value_from = op_.value_from > 0 ? op_.value_from : op_.from;
    const int64_t value_to = op_.value_from > 0 ? op_.value_to : op_.to;
    while (from < end) OneHead(nullptr, value_from, value_to, &from, &to);
  }

 private:
  void OneHead(const float* norm, int64_t width, int64_t to_width, const float** from, float** to) {
    const int64_t kept = std::min(width, to_width);
    if (norm != nullptr) {
      ws_.kernels.rms_norm(*from, norm, ws_.program.rms_eps, kept, *to);
    } else {
      std::memcpy(*to, *from, static_cast<size_t>(kept) * sizeof(float));
    }
    // In each step: where a cache turns heads, attention has turned these in place.
    std::fill(*to + kept, *to + to_width, 0.0f);
    *from += width;
    *to += to_width;
  }

  const backend::ResizeHeadsOp op_;
  const int64_t width_;
};

}  // namespace

void AddPhases(const backend::ResizeHeadsOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<ResizeHeads>(op, ws);
}

}  // namespace mainarch::cpu
