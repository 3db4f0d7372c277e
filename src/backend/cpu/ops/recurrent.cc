// SPDX-License-Identifier: MIT
//
// A gated linear recurrence over the rows of each sequence. One item: some channels of one sequence.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

constexpr int64_t kItemChannels = 256;

class Recurrent : public Phase {
 public:
  Recurrent(const backend::RecurrentOp& op, Workspace* ws)
      : Phase(ws),
        op_(op),
        width_(ws->program.buffers[static_cast<size_t>(op.out)].width),
        chunks_(static_cast<uint32_t>((width_ + kItemChannels - 1) / kItemChannels)) {
    first_rows_.resize(ws->options.max_rows + size_t{1});
  }

  uint32_t Open() override {
    const absl::Span<const backend::StepRow> rows = ws_.step().rows;
    sequences_ = 0;
    for (uint32_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || rows[i].sequence != rows[i - 1].sequence) first_rows_[sequences_++] = i;
    }
    first_rows_[sequences_] = static_cast<uint32_t>(rows.size());
    return static_cast<uint32_t>(ws_.ranks) * sequences_ * chunks_;
  }

  void Run(uint32_t item, int) override {
    const int32_t rank = static_cast<int32_t>(item / (sequences_ * chunks_));
    const uint32_t sequence = item / chunks_ % sequences_;
    const int64_t begin = item % chunks_ * kItemChannels;
    RunRows(rank, first_rows_[sequence], first_rows_[sequence + 1], begin,
            std::min(kItemChannels, width_ - begin));
  }

 private:
  // Channels [begin, begin + count) of rows [first, last), which are a sequence's.
  void RunRows(int32_t rank, uint32_t first, uint32_t last, int64_t begin, int64_t count) {
    const size_t cache = static_cast<size_t>(op_.cache);
    const uint32_t sequence = ws_.step().rows[first].sequence;
    const backend::StepCache& list = ws_.step().sequences[sequence].caches[cache];
    float state[kItemChannels] = {};
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    if (list.state_in != backend::kNoSlot) {
      std::memcpy(state, SlotAt(rank, list.state_in) + begin, bytes);
    }
    size_t out = 0;
    for (uint32_t row = first; row < last; ++row) {
      const float* gate = ws_.Row(rank, op_.in, row) + begin;
      const float* value = gate + width_;
      for (int64_t i = 0; i < count; ++i) {
        const float z = 1 / (1 + std::exp(-gate[i]));
        state[i] += z * (value[i] - state[i]);
      }
      std::memcpy(ws_.Row(rank, op_.out, row) + begin, state, bytes);
      if (out == list.state_out.size() || list.state_out[out].row != row - first) continue;
      std::memcpy(SlotAt(rank, list.state_out[out++].slot) + begin, state, bytes);
    }
  }
  float* SlotAt(int32_t rank, uint32_t slot) {
    return reinterpret_cast<float*>(ws_.caches.slots(op_.cache).At(rank, op_.layer, slot));
  }

  const backend::RecurrentOp op_;
  const int64_t width_;
  const uint32_t chunks_;             // of a row
  std::vector<uint32_t> first_rows_;  // [sequences_ + 1], of the step
  uint32_t sequences_ = 0;
};

}  // namespace

void AddPhases(const backend::RecurrentOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Recurrent>(op, ws);
}

}  // namespace mainarch::cpu
