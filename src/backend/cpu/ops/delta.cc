// SPDX-License-Identifier: MIT
//
// A gated delta net. One item: a value head of one sequence, all its rows of the step in turn, some at
// a time, so that sixteen columns of its state stay in the first cache through these. A row's
// arithmetic is the same however rows are cut.
//
// A slot: [value_heads][value_dim / 16][key_dim][16] of S, then [taps - 1][channels], oldest first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr float kNormEps = 1e-6f;  // of q and k

// What each worker needs for one block of rows of one head.
class DeltaScratch : public Shared {
 public:
  struct Part {
    float* q;  // [kBlockRows, key_dim]
    float* k;
    float* v;    // [kBlockRows, value_dim]
    float* out;  // the same
    float* state;
    float* alpha;  // [kBlockRows], as are the next two
    float* beta;
    float* qk;
    const float* zeros;  // a head wide
  };

  DeltaScratch(Workspace* ws, const backend::GatedDeltaOp& op)
      : key_dim_(op.key_dim), value_dim_(op.value_dim), parts_(static_cast<size_t>(ws->workers)) {}

  void Carve(Carver* carve) override {
    for (Part& part : parts_) {
      part.q = carve->Take<float>(kBlockRows * key_dim_);
      part.k = carve->Take<float>(kBlockRows * key_dim_);
      part.v = carve->Take<float>(kBlockRows * value_dim_);
      part.out = carve->Take<float>(kBlockRows * value_dim_);
      part.state = carve->Take<float>(key_dim_ * value_dim_);
      part.alpha = carve->Take<float>(kBlockRows);
      part.beta = carve->Take<float>(kBlockRows);
      part.qk = carve->Take<float>(kBlockRows);
      part.zeros = carve->Take<float>(std::max(key_dim_, value_dim_));
    }
  }
  const Part& part(int worker) const { return parts_[static_cast<size_t>(worker)]; }

 private:
  const int64_t key_dim_, value_dim_;
  std::vector<Part> parts_;
};

class GatedDelta : public SequencePhase {
 public:
  GatedDelta(const backend::GatedDeltaOp& op, Workspace* ws)
      : SequencePhase(ws),
        op_(op),
        channels_(backend::DeltaChannels(op)),
        scratch_(*ws->Share<DeltaScratch>(
            "delta " + std::to_string(op.key_dim) + " " + std::to_string(op.value_dim), op)) {
    for (int32_t rank = 0; rank < ws->ranks; ++rank) TakeVectors(rank);
  }

  uint32_t Open() override {
    OpenSequences();
    return static_cast<uint32_t>(ws_.ranks * op_.value_heads) * sequences();
  }

  void Run(uint32_t item, int worker) override {
    const auto heads = static_cast<uint32_t>(op_.value_heads);
    Head at = {};
    at.head = static_cast<int32_t>(item % heads);
    at.rank = static_cast<int32_t>(item / heads / sequences());
    const uint32_t sequence = item / heads % sequences();
    at.first = FirstRow(sequence);
    at.last = FirstRow(sequence + 1);
    at.list = &CacheOf(op_, at.first);
    at.slot = at.list->state_in == backend::kNoSlot ? nullptr : SlotAt(op_, at.rank, at.list->state_in);
    RunRows(at, scratch_.part(worker));
  }

 private:
  // One item: rows [first, last) of the step, a sequence's.
  struct Head {
    int32_t rank, head;
    uint32_t first, last;
    const backend::StepCache* list;
    const float* slot;  // before the first row; null: of an empty sequence
  };
  // A rank's, in the order and form that they are used in.
  struct Vectors {
    std::vector<float> conv;   // [taps][channels]
    std::vector<float> decay;  // exp(A_log)
  };

  void TakeVectors(int32_t rank) {
    Vectors& own = vectors_.emplace_back();
    const float* const conv = ws_.Vector(rank, op_.conv);
    own.conv.resize(static_cast<size_t>(channels_ * op_.taps));
    for (int64_t i = 0; i < channels_ * op_.taps; ++i) {
      own.conv[static_cast<size_t>(i % op_.taps * channels_ + i / op_.taps)] = conv[i];
    }
    const float* const decay = ws_.Vector(rank, op_.decay);
    for (int32_t head = 0; head < op_.value_heads; ++head) {
      own.decay.push_back(std::exp(decay[head]));
    }
  }

  void RunRows(const Head& at, const DeltaScratch::Part& part) {
    const int64_t state_size = int64_t{op_.key_dim} * op_.value_dim;
    const float* from = at.slot == nullptr ? nullptr : at.slot + at.head * state_size;
    size_t out = 0;
    for (uint32_t row = at.first; row < at.last;) {
      uint32_t end = std::min(at.last, row + static_cast<uint32_t>(kBlockRows));
      float* to = part.state;
      if (out < at.list->state_out.size() && at.first + at.list->state_out[out].row < end) {
        end = at.first + at.list->state_out[out].row + 1;
        float* const slot = SlotAt(op_, at.rank, at.list->state_out[out++].slot);
        KeepTail(at, end, slot);
        to = slot + at.head * state_size;
      }
      RunBlock(at, row, end, from, to, part);
      from = to;
      row = end;
    }
  }

  void RunBlock(const Head& at, uint32_t begin, uint32_t end, const float* from, float* to,
                const DeltaScratch::Part& part) {
    const int64_t key_dim = op_.key_dim, value_dim = op_.value_dim;
    const int64_t key_head = at.head / (op_.value_heads / op_.key_heads);
    const int64_t keys = int64_t{op_.key_heads} * key_dim;
    const float scale = 1 / std::sqrt(static_cast<float>(key_dim));
    for (uint32_t row = begin; row < end; ++row) {
      const int64_t i = row - begin;
      float* const q = part.q + i * key_dim;
      float* const k = part.k + i * key_dim;
      Convolve(at, row, key_head * key_dim, key_dim, part.zeros, q);
      Convolve(at, row, keys + key_head * key_dim, key_dim, part.zeros, k);
      Convolve(at, row, 2 * keys + at.head * value_dim, value_dim, part.zeros, part.v + i * value_dim);
      ws_.kernels.l2_norm(q, kNormEps, scale, key_dim);
      ws_.kernels.l2_norm(k, kNormEps, 1, key_dim);
      part.qk[i] = ws_.kernels.dot(q, k, key_dim);
      const float* const gates = ws_.Row(at.rank, op_.gates, row);
      part.beta[i] = 1 / (1 + std::exp(-gates[at.head]));
      const float a = gates[op_.value_heads + at.head] + ws_.Vector(at.rank, op_.dt_bias)[at.head];
      const float softplus = a > 20 ? a : std::log1p(std::exp(a));
      part.alpha[i] = std::exp(-VectorsOf(at).decay[static_cast<size_t>(at.head)] * softplus);
    }
    ws_.kernels.delta({op_.key_dim, op_.value_dim, end - begin, from, to, part.q, part.k, part.v,
                       part.alpha, part.beta, part.qk, part.out});
    for (uint32_t row = begin; row < end; ++row) {
      float* const out = ws_.Row(at.rank, op_.out, row) + at.head * value_dim;
      ws_.kernels.rms_norm(part.out + (row - begin) * value_dim, ws_.Vector(at.rank, op_.norm),
                           ws_.program.rms_eps, value_dim, out);
      const float* const z = ws_.Row(at.rank, op_.in, row) + channels_ + at.head * value_dim;
      ws_.kernels.silu_gate(out, z, value_dim);
    }
  }

  // Channels [channel, channel + n) of a row.
  void Convolve(const Head& at, uint32_t row, int64_t channel, int64_t n, const float* zeros,
                float* out) {
    const float* x[backend::kMostTaps];
    for (int32_t tap = 0; tap < op_.taps; ++tap) {
      x[tap] = Before(at, row, op_.taps - 1 - tap, zeros, channel);
    }
    ws_.kernels.conv_silu(x, VectorsOf(at).conv.data() + channel, channels_, op_.taps, n, out);
  }

  // Channels of the row `back` rows before `row`, of this step or as the slot has them.
  const float* Before(const Head& at, uint32_t row, int32_t back, const float* zeros,
                      int64_t channel) const {
    const int64_t i = int64_t{row} - back - at.first;
    if (i >= 0) return ws_.Row(at.rank, op_.in, at.first + i) + channel;
    return at.slot == nullptr ? zeros : TailOf(at.slot) + (op_.taps - 1 + i) * channels_ + channel;
  }

  // The last rows before `end` to a slot: of this head's own channels, and, by the first value head
  // of each, of its key head's.
  void KeepTail(const Head& at, uint32_t end, float* slot) {
    const int64_t ratio = op_.value_heads / op_.key_heads, key_dim = op_.key_dim;
    const int64_t keys = op_.key_heads * key_dim, value_dim = op_.value_dim;
    struct {
      int64_t channel, count;
    } const tails[] = {{at.head / ratio * key_dim, at.head % ratio == 0 ? key_dim : 0},
                               {keys + at.head / ratio * key_dim, at.head % ratio == 0 ? key_dim : 0},
                               {2 * keys + at.head * value_dim, value_dim}};
    for (int32_t back = op_.taps - 1; back > 0; --back) {
      float* const to = TailOf(slot) + (op_.taps - 1 - back) * channels_;
      for (const auto& tail : tails) {
        const float* const x = Before(at, end, back, nullptr, 0);
        const size_t bytes = static_cast<size_t>(tail.count) * sizeof(float);
        if (x == nullptr) {
          std::memset(to + tail.channel, 0, bytes);
        } else {
          std::memcpy(to + tail.channel, x + tail.channel, bytes);
        }
      }
    }
  }
  const Vectors& VectorsOf(const Head& at) const { return vectors_[static_cast<size_t>(at.rank)]; }
  template <class T>
  T* TailOf(T* slot) const {
    return slot + int64_t{op_.value_heads} * op_.key_dim * op_.value_dim;
  }

  const backend::GatedDeltaOp op_;
  const int64_t channels_;
  const DeltaScratch& scratch_;
  std::vector<Vectors> vectors_;  // [ranks]
};

}  // namespace

void AddPhases(const backend::GatedDeltaOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<GatedDelta>(op, ws);
}

}  // namespace mainarch::cpu
