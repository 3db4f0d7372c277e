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

class Recurrent : public SequencePhase {
 public:
  Recurrent(const backend::RecurrentOp& op, Workspace* ws)
      : SequencePhase(ws),
        op_(op),
        width_(ws->program.buffers[static_cast<size_t>(op.out)].width),
        chunks_(static_cast<uint32_t>((width_ + kItemChannels - 1) / kItemChannels)) {}

  uint32_t Open() override {
    OpenSequences();
    return static_cast<uint32_t>(ws_.ranks) * sequences() * chunks_;
  }

  void Run(uint32_t item, int) override {
    const int32_t rank = static_cast<int32_t>(item / (sequences() * chunks_));
    const uint32_t sequence = item / chunks_ % sequences();
    const int64_t begin = item % chunks_ * kItemChannels;
    RunRows(rank, sequence, begin, std::min(kItemChannels, width_ - begin));
  }

 private:
  // Channels [begin, begin + count) of a sequence's rows.
  void RunRows(int32_t rank, uint32_t sequence, int64_t begin, int64_t count) {
    const uint32_t first = FirstRow(sequence), last = FirstRow(sequence + 1);
    const backend::StepCache& list = CacheOf(op_, first);
    float state[kItemChannels] = {};
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    if (list.state_in != backend::kNoSlot) {
      std::memcpy(state, SlotAt(op_, rank, list.state_in) + begin, bytes);
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
      std::memcpy(SlotAt(op_, rank, list.state_out[out++].slot) + begin, state, bytes);
    }
  }

  const backend::RecurrentOp op_;
  const int64_t width_;
  const uint32_t chunks_;  // of a row
};

}  // namespace

void AddPhases(const backend::RecurrentOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Recurrent>(op, ws);
}

}  // namespace mainarch::cpu
