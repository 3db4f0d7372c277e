// SPDX-License-Identifier: MIT
//
// Latent attention's own: products of each head with a matrix of its own, and what a token's key and its queries
// are made of.
#include <cstring>

#include "backend/cpu/ops/attention_plan.h"
#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

// One item: a head of a rank. In every mode of fp32: what comes out goes into scores.
class HeadsMatmul : public Phase {
 public:
  HeadsMatmul(const backend::HeadsMatmulOp& op, Workspace* ws)
      : Phase(ws), op_(op), heads_(ws->program.weights[static_cast<size_t>(op.w)].groups) {}

  uint32_t Open() override { return static_cast<uint32_t>(ws_.ranks * heads_); }

  void Run(uint32_t item, int worker) override {
    const int32_t rank = static_cast<int32_t>(item) / heads_, head = static_cast<int32_t>(item) % heads_;
    Worker* scratch = ws_.worker(worker);
    for (int64_t row = 0; row < ws_.rows(); ++row) {
      scratch->x[row] = ws_.Row(rank, op_.in, row) + op_.in_at + int64_t{head} * op_.in_step;
      scratch->out[row] = ws_.Row(rank, op_.out, row) + op_.out_at + int64_t{head} * op_.out_step;
    }
    const size_t group = static_cast<size_t>(head);
    const int64_t panels = ws_.weight(rank, op_.w).plans[group].panels;
    ws_.RunPanels(rank, op_.w, group, 0, panels, ws_.rows(), {Epilogue::kStore}, /*rounded=*/false,
                  /*next=*/nullptr, scratch);
  }

 private:
  const backend::HeadsMatmulOp op_;
  const int32_t heads_;
};

// One item: a row of a rank.
class Latent : public Phase {
 public:
  Latent(const backend::LatentOp& op, Workspace* ws)
      : Phase(ws), op_(op), rope_(*ws->Share<RopeTable>(absl::StrCat("rope ", op.rope), op.rope)) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item), key = int64_t{op_.turning} + op_.latent;
    const float* q = ws_.Row(rank, op_.q, row) + op_.still;
    const float* kv = ws_.Row(rank, op_.kv, row);
    float* to = ws_.Row(rank, op_.qkv, row);
    for (int32_t h = 0; h < op_.heads; ++h, q += op_.still + op_.turning, to += key) Turn(row, q, to);
    Turn(row, kv + op_.latent, to);
    ws_.kernels.rms_norm(kv, ws_.Vector(rank, op_.norm), op_.epsilon, op_.latent, to + op_.turning);
    std::memcpy(to + key, to + op_.turning, static_cast<size_t>(op_.latent) * sizeof(float));
  }

 private:
  void Turn(int64_t row, const float* from, float* to) const {
    const int32_t half = op_.turning / 2;
    for (int32_t i = 0; i < half; ++i) {
      to[i] = from[op_.pairs ? 2 * i : i];
      to[half + i] = from[op_.pairs ? 2 * i + 1 : half + i];
    }
    ws_.kernels.norm_rope(to, /*norm=*/nullptr, 0, op_.turning, rope_.cos(row), rope_.sin(row), half, 1.0f, to);
  }

  const backend::LatentOp op_;
  const RopeTable& rope_;
};

}  // namespace

void AddPhases(const backend::HeadsMatmulOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<HeadsMatmul>(op, ws);
}
void AddPhases(const backend::LatentOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<Latent>(op, ws);
}

}  // namespace mainarch::cpu
