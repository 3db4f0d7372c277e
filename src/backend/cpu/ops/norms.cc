// SPDX-License-Identifier: MIT
//
// Norms by themselves: of what a block adds to x, and of Q and K over the heads of all ranks.
#include <cmath>
#include <cstring>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

// One item: a row of a rank.
class AddNormed : public Phase {
 public:
  AddNormed(const backend::AddNormedOp& op, Workspace* ws)
      : Phase(ws), op_(op), width_(ws->program.buffers[static_cast<size_t>(op.x)].width) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    float* const y = ws_.Row(rank, op_.y, row);
    float* const x = ws_.Row(rank, op_.x, row);
    // What is added may be scaled in place; what x is set to may be wanted as it was.
    float* to = op_.add ? y : x;
    if (const float* norm = ws_.Vector(rank, op_.norm)) {
      const float epsilon = op_.epsilon > 0 ? op_.epsilon : ws_.program.rms_eps;
      ws_.kernels.rms_norm(y, norm, epsilon, width_, to);
    } else if (!op_.add) {
      std::memcpy(x, y, static_cast<size_t>(width_) * sizeof(float));
    }
    if (op_.scale != 1) ws_.kernels.scale(to, op_.scale, width_);
    if (op_.add) ws_.kernels.add_tree(x, &to, 1, ws_.SlotStride(op_.x));
  }

 private:
  const backend::AddNormedOp op_;
  const int64_t width_;
};

// What the ranks' heads are multiplied by: of Q and of K of each row.
class WideScales : public Shared {
 public:
  explicit WideScales(Workspace* ws) : rows_(ws->options.max_rows) {}
  void Carve(Carver* carve) override { scales_ = carve->Take<float>(2 * int64_t{rows_}); }
  float* Row(int64_t row) const { return scales_ + 2 * row; }

 private:
  const uint32_t rows_;
  float* scales_ = nullptr;
};

// One item: a row, for all ranks. Head after head, so that the sum does not depend on who has them.
class WideSquares : public Phase {
 public:
  WideSquares(const backend::WideNormOp& op, Workspace* ws)
      : Phase(ws), op_(op), scales_(*ws->Share<WideScales>("wide norm")) {}

  uint32_t Open() override { return static_cast<uint32_t>(ws_.rows()); }

  void Run(uint32_t item, int) override {
    const int64_t row = item;
    float q = 0, k = 0;
    for (int32_t rank = 0; rank < ws_.ranks; ++rank) {
      for (int32_t head = 0; head < op_.heads; ++head) q += Squares(rank, row, head);
    }
    for (int32_t head = 0; head < op_.total_kv_heads; ++head) {
      // Its first owner: where ranks are more, several have it.
      const int32_t rank = static_cast<int32_t>(int64_t{head} * ws_.ranks / op_.total_kv_heads);
      k += Squares(rank, row, op_.heads + head % op_.kv_heads);
    }
    scales_.Row(row)[0] = Scale(q, int64_t{op_.heads} * ws_.ranks);
    scales_.Row(row)[1] = Scale(k, op_.total_kv_heads);
  }

 private:
  float Squares(int32_t rank, int64_t row, int32_t head) const {
    const float* x = ws_.Row(rank, op_.qkv, row) + int64_t{head} * op_.key_dim;
    float sum = 0;
    for (int32_t i = 0; i < op_.key_dim; ++i) sum += x[i] * x[i];
    return sum;
  }
  float Scale(float sum, int64_t heads) const {
    return 1 / std::sqrt(sum / static_cast<float>(heads * op_.key_dim) + ws_.program.rms_eps);
  }

  const backend::WideNormOp op_;
  const WideScales& scales_;
};

// One item: a row of a rank.
class WideApply : public Phase {
 public:
  WideApply(const backend::WideNormOp& op, Workspace* ws)
      : Phase(ws), op_(op), scales_(*ws->Share<WideScales>("wide norm")) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item), width = int64_t{op_.heads} * op_.key_dim;
    float* q = ws_.Row(rank, op_.qkv, row);
    Apply(ws_.Vector(rank, op_.q_norm), scales_.Row(row)[0], width, q);
    Apply(ws_.Vector(rank, op_.k_norm), scales_.Row(row)[1], int64_t{op_.kv_heads} * op_.key_dim,
          q + width);
  }

 private:
  static void Apply(const float* w, float scale, int64_t n, float* x) {
    for (int64_t i = 0; i < n; ++i) x[i] *= scale * w[i];
  }

  const backend::WideNormOp op_;
  const WideScales& scales_;
};

}  // namespace

void AddPhases(const backend::AddNormedOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<AddNormed>(op, ws);
}
void AddPhases(const backend::WideNormOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<WideSquares>(op, ws);
  phases->Add<WideApply>(op, ws);
}

}  // namespace mainarch::cpu
