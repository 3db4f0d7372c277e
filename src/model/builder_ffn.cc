// SPDX-License-Identifier: MIT
//
// The feed-forward block, dense or of experts, and how its width is dealt out to ranks (models.md
// §3).
#include "model/builder.h"
#include "model/splits.h"
#include "model/tensor_names.h"

namespace mainarch::model {
namespace {

using backend::BufferType;
using backend::Weight;
using backend::WeightId;
using backend::WeightLayout;
using backend::WeightSlice;

}  // namespace

WeightId Builder::NormBefore(const std::string& prefix, const std::string& name) {
  return name.empty() ? backend::kNone : Norm(prefix + name, config_.hidden);
}

WeightId Builder::GateUpShards(const std::string& label, const std::vector<MatrixPart>& gates,
                               const std::vector<MatrixPart>& ups, int64_t cols,
                               const std::vector<int64_t>& splits) {
  Weight weight;
  weight.label = label;
  weight.layout = WeightLayout::kGateUp;
  weight.groups = static_cast<int32_t>(gates.size());
  for (size_t i = 0; i < gates.size(); ++i) {
    weight.sources.push_back(gates[i].matrix);
    weight.sources.push_back(ups[i].matrix);
  }
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto [begin, end] = RankPart(splits, rank);
    std::vector<WeightSlice> slices;
    for (size_t i = 0; i < 2 * gates.size(); ++i) {
      const MatrixPart& part = i % 2 == 0 ? gates[i / 2] : ups[i / 2];
      slices.push_back(
          {static_cast<int32_t>(i), part.row + begin, part.row + end, part.col, part.col + cols});
    }
    weight.ranks.push_back(std::move(slices));
  }
  return AddWeight(std::move(weight));
}

WeightId Builder::BiasShards(const std::string& label, const quant::Matrix& bias, int64_t at,
                             const std::vector<int64_t>& splits) {
  std::vector<std::vector<WeightSlice>> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto [begin, end] = RankPart(splits, rank);
    std::vector<WeightSlice>& slices = ranks.emplace_back();
    for (int64_t row = 0; row < bias.rows; ++row) {
      slices.push_back({0, row, row + 1, at + begin, at + end});
    }
  }
  return VectorShards(label, {bias}, std::move(ranks));
}

void Builder::GateUp(const std::string& mlp, int64_t width, const std::vector<int64_t>& splits,
                     WeightId norm, backend::BufferId act) {
  MatrixPart gate, up;
  backend::NormGateUpOp op = {program_->x, norm, backend::kNone, act, config_.activation};
  if (config_.fused_gate_up) {
    gate.matrix = up.matrix = Linear(mlp + "gate_up_proj", 2 * width, config_.hidden);
    up.row = width;
    if (config_.mlp_bias) {
      const quant::Matrix bias = VectorOf(mlp + "gate_up_proj.bias", 2 * width);
      op.gate_bias = BiasShards(mlp + "gate.bias", bias, 0, splits);
      op.up_bias = BiasShards(mlp + "up.bias", bias, width, splits);
    }
  } else {
    gate.matrix = Linear(mlp + "gate_proj", width, config_.hidden);
    up.matrix = Linear(mlp + "up_proj", width, config_.hidden);
    if (config_.mlp_bias) {
      op.gate_bias =
          BiasShards(mlp + "gate.bias", VectorOf(mlp + "gate_proj.bias", width), 0, splits);
      op.up_bias = BiasShards(mlp + "up.bias", VectorOf(mlp + "up_proj.bias", width), 0, splits);
    }
  }
  op.w = GateUpShards(mlp + "gate_up", {gate}, {up}, config_.hidden, splits);
  program_->ops.push_back(op);
}

void Builder::Down(const std::string& mlp, int64_t width, const std::vector<int64_t>& splits,
                   backend::BufferId act, const std::string& norm_after) {
  const std::string down = mlp + "down_proj";
  AddProduct(act, ColumnShards(down, {Linear(down, config_.hidden, width)}, splits, 1),
             config_.mlp_bias ? down + ".bias" : "", norm_after);
}

void Builder::DenseFfn(const std::string& prefix) {
  const std::vector<int64_t> splits = SplitAt(config_.intermediate, kColumnUnit);
  const NormNames norms = NormNamesOf(config_.norms);
  if (act_ < 0) act_ = AddBuffer("act", WidestPart(splits));
  GateUp(prefix + "mlp.", config_.intermediate, splits, NormBefore(prefix, norms.before_ffn), act_);
  Down(prefix + "mlp.", config_.intermediate, splits, act_,
       norms.after_ffn.empty() ? "" : prefix + norms.after_ffn);
}

void Builder::DecideShared(const std::vector<std::string>& layers) {
  if (!SharedIsAnExpert(*checkpoint_, config_, layers)) return;
  program_->shared_expert = true;
  ++program_->experts;
  ++program_->experts_per_token;
}

// Of each expert, and of the gate of the one for all tokens where that is an expert, too.
WeightId Builder::RouterProduct(const std::string& prefix) {
  const ExpertTensors names = ExpertTensorsOf(config_);
  const int64_t experts = config_.experts, hidden = config_.hidden;
  Weight weight;
  weight.label = prefix + names.router;
  weight.sources.push_back(Linear(prefix + names.router, experts, hidden));
  std::vector<WeightSlice> slices = {{0, 0, experts, 0, hidden}};
  if (program_->shared_expert) {
    weight.sources.push_back(Linear(prefix + names.shared_gate, 1, hidden));
    slices.push_back({1, 0, 1, 0, hidden});
  }
  weight.ranks.assign(static_cast<size_t>(ranks_), slices);
  return AddWeight(std::move(weight));
}

// act = that of the expert for all tokens, times its gate.
void Builder::SharedGateUp(const std::string& prefix, WeightId norm) {
  const ExpertTensors names = ExpertTensorsOf(config_);
  const int64_t width = config_.shared_intermediate;
  const std::vector<int64_t> splits = SplitAt(width, kColumnUnit);
  if (shared_act_ < 0) shared_act_ = AddBuffer("shared.act", WidestPart(splits));
  GateUp(prefix + names.shared, width, splits, norm, shared_act_);
  if (!config_.shared_gate) return;
  if (shared_gate_ < 0) shared_gate_ = AddBuffer("shared.gate", 1);
  program_->ops.push_back(backend::NormMatmulOp{
      program_->x, norm,
      Replicated(prefix + names.shared_gate, 1, config_.hidden, WeightLayout::kPanels),
      shared_gate_});
  program_->ops.push_back(backend::RowGateOp{shared_gate_, shared_act_});
}

void Builder::Router(const std::string& prefix, WeightId norm) {
  const ExpertTensors names = ExpertTensorsOf(config_);
  backend::RouterOp op = {
      program_->x,
      norm,
      RouterProduct(prefix),
      moe_h_,
      moe_ids_,
      moe_weights_,
      config_.norm_topk_prob};
  op.sigmoid = config_.router.sigmoid;
  op.groups = config_.router.groups;
  op.chosen_groups = config_.router.chosen_groups;
  op.scale = static_cast<float>(config_.router.scale);
  if (config_.router.bias) op.bias = Vector(prefix + names.router + ".bias", config_.experts);
  if (config_.router.correction) op.correction = Vector(prefix + names.correction, config_.experts);
  program_->ops.push_back(op);
}

void Builder::Experts(const std::string& prefix) {
  backend::Program& p = *program_;
  const int64_t width = config_.moe_intermediate;
  const std::vector<int64_t> splits = SplitAt(width, kColumnUnit);
  auto found = FindExperts(*checkpoint_, config_, prefix);
  if (!found.ok()) return Fail(found.status());
  if (p.shared_expert) {
    auto shared = FindSharedExpert(*checkpoint_, config_, prefix);
    if (!shared.ok()) return Fail(shared.status());
    found->gate.push_back(shared->gate[0]);
    found->up.push_back(shared->up[0]);
    found->down.push_back(shared->down[0]);
  }
  const std::string label = prefix + "mlp.experts.";
  backend::ExpertsGateUpOp up = {
      moe_h_, moe_ids_,
      GateUpShards(label + "gate_up", found->gate, found->up, config_.hidden, splits), moe_act_,
      config_.activation};
  quant::Matrix down_bias;
  if (config_.mlp_bias) {
    const auto biases = FindExpertBiases(*checkpoint_, config_, prefix);
    if (!biases.ok()) return Fail(biases.status());
    up.gate_bias = BiasShards(label + "gate.bias", biases->gate, 0, splits);
    up.up_bias = BiasShards(label + "up.bias", biases->up, 0, splits);
    down_bias = biases->down;
  }
  p.ops.push_back(up);
  const WeightId down =
      ColumnShards(label + "down_proj", std::move(found->down), splits, p.experts);
  if (ranks_ == 1) {
    p.ops.push_back(
        backend::ExpertsDownOp{moe_act_, moe_ids_, moe_weights_, down, p.x, /*add=*/true});
  } else {
    if (partial_ < 0) partial_ = AddBuffer("partial", config_.hidden);
    p.ops.push_back(
        backend::ExpertsDownOp{moe_act_, moe_ids_, moe_weights_, down, partial_, /*add=*/false});
    p.ops.push_back(backend::AllReduceAddOp{partial_, p.x});
  }
  if (!config_.mlp_bias) return;
  std::vector<WeightSlice> rows;
  for (int32_t e = 0; e < config_.experts; ++e) rows.push_back({0, e, e + 1, 0, config_.hidden});
  const WeightId bias = VectorShards(
      label + "down.bias", {down_bias},
      std::vector<std::vector<WeightSlice>>(static_cast<size_t>(ranks_), std::move(rows)));
  p.ops.push_back(backend::ExpertsBiasOp{moe_ids_, moe_weights_, bias, p.x});
}

// The expert for all tokens is one of the others where it is like them. Else it is made of x before the
// others are added to it, and added first.
void Builder::MoeFfn(const std::string& prefix) {
  backend::Program& p = *program_;
  if (!status_.ok()) return;
  const int32_t k = p.experts_per_token;
  const WeightId norm = NormBefore(prefix, NormNamesOf(config_.norms).before_ffn);
  if (norm == backend::kNone || config_.norms.after || config_.residual_scale != 1) {
    return Fail(Error(Code::kUnsupported, checkpoint_->directory(),
                      ": experts with a norm behind them, or a factor"));
  }
  if (moe_h_ < 0) {
    moe_h_ = AddBuffer("moe.h", config_.hidden);
    moe_ids_ = AddBuffer("moe.ids", k, 1, BufferType::kI32);
    moe_weights_ = AddBuffer("moe.weights", k);
    moe_act_ = AddBuffer("moe.act", WidestPart(SplitAt(config_.moe_intermediate, kColumnUnit)), k);
  }
  const int64_t shared = p.shared_expert ? 0 : config_.shared_intermediate;
  if (shared > 0) SharedGateUp(prefix, norm);
  Router(prefix, norm);
  if (shared > 0) {
    Down(prefix + ExpertTensorsOf(config_).shared, shared, SplitAt(shared, kColumnUnit),
         shared_act_, "");
  }
  Experts(prefix);
}

}  // namespace mainarch::model
