// SPDX-License-Identifier: MIT
//
// Feed-forwards of the fp64 decoder: dense, and mixtures of experts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/decoder.h"
#include "reference/math.h"

namespace mainarch::reference {

Vector Decoder::Activate(const Vector& gate, const Vector& up) const {
  Vector out(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i], u = up[i];
    switch (config_.activation) {
      case backend::Activation::kSilu:
        out[i] = g * Sigmoid(g) * u;
        break;
      case backend::Activation::kGeluTanh:
        out[i] = 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
        break;
      case backend::Activation::kClampedSwiglu: {
        const double gated = std::min(g, 7.0);
        out[i] = gated * Sigmoid(1.702 * gated) * (std::clamp(u, -7.0, 7.0) + 1);
        break;
      }
    }
  }
  return out;
}

Vector Decoder::RunMlp(const Mlp& mlp, const Vector& h) const {
  Vector gate, up;
  if (config_.fused_gate_up) {
    Vector both = Multiply(mlp.gate_up, h);
    if (config_.mlp_bias) AddTo(RowOf(mlp.gate_up_bias, 0), &both);
    const auto middle = both.begin() + static_cast<ptrdiff_t>(both.size() / 2);
    gate.assign(both.begin(), middle);
    up.assign(middle, both.end());
  } else {
    gate = Multiply(mlp.gate, h);
    up = Multiply(mlp.up, h);
    if (config_.mlp_bias) {
      AddTo(RowOf(mlp.gate_bias, 0), &gate);
      AddTo(RowOf(mlp.up_bias, 0), &up);
    }
  }
  Vector y = Multiply(mlp.down, Activate(gate, up));
  if (config_.mlp_bias) AddTo(RowOf(mlp.down_bias, 0), &y);
  return y;
}

void Decoder::Ffn(const Layer& layer, Vector* x) const {
  Vector h = *x;
  if (config_.norms.before) Norm(layer.ffn_norm, &h);
  AddBlock(layer.output_norm, layer.sparse ? MixExperts(layer, h) : RunMlp(layer.dense, h), x);
}

std::vector<std::pair<size_t, double>> Decoder::Route(const Layer& layer, const Vector& h) const {
  const model::RouterConfig& router = config_.router;
  Vector p = Multiply(layer.router, h);
  if (router.bias) AddTo(RowOf(layer.router_bias, 0), &p);
  if (router.sigmoid) {
    for (double& score : p) score = Sigmoid(score);
  } else {
    Softmax(&p);
  }
  Vector choice = p;
  if (router.correction) AddTo(RowOf(layer.correction, 0), &choice);
  const auto best = [](const Vector& scores, size_t count) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(count);
    return order;
  };
  if (router.groups > 1) {
    const size_t groups = static_cast<size_t>(router.groups), size = choice.size() / groups;
    Vector scores(groups);
    for (size_t g = 0; g < groups; ++g) {
      Vector own(choice.begin() + static_cast<ptrdiff_t>(g * size),
                 choice.begin() + static_cast<ptrdiff_t>((g + 1) * size));
      std::sort(own.rbegin(), own.rend());
      scores[g] = own[0] + own[1];
    }
    std::vector<bool> chosen(groups);
    for (size_t g : best(scores, static_cast<size_t>(router.chosen_groups))) chosen[g] = true;
    for (size_t e = 0; e < choice.size(); ++e) {
      if (!chosen[e / size]) choice[e] = -std::numeric_limits<double>::infinity();
    }
  }
  std::vector<std::pair<size_t, double>> out;
  double sum = 0;
  for (size_t e : best(choice, static_cast<size_t>(config_.experts_per_token))) {
    out.emplace_back(e, p[e]);
    sum += p[e];
  }
  for (auto& [expert, weight] : out) {
    if (config_.norm_topk_prob) weight /= sum;
    weight *= router.scale;
  }
  return out;
}

Vector Decoder::RunExpert(const Layer& layer, size_t expert, const Vector& h) const {
  const int64_t width = config_.moe_intermediate;
  const model::MatrixPart& gate_of = layer.experts.gate[expert];
  const model::MatrixPart& up_of = layer.experts.up[expert];
  Vector gate = Multiply(gate_of.matrix, gate_of.row, width, gate_of.col, h);
  Vector up = Multiply(up_of.matrix, up_of.row, width, up_of.col, h);
  const int64_t row = static_cast<int64_t>(expert);
  if (config_.mlp_bias) {
    AddTo(RowOf(layer.expert_biases.gate, row), &gate);
    AddTo(RowOf(layer.expert_biases.up, row), &up);
  }
  Vector y = Multiply(layer.experts.down[expert], Activate(gate, up));
  if (config_.mlp_bias) AddTo(RowOf(layer.expert_biases.down, row), &y);
  return y;
}

Vector Decoder::MixExperts(const Layer& layer, const Vector& h) const {
  Vector y(h.size(), 0.0);
  for (const auto& [expert, weight] : Route(layer, h)) {
    const Vector out = RunExpert(layer, expert, h);
    for (size_t i = 0; i < y.size(); ++i) y[i] += weight * out[i];
  }
  if (config_.shared_intermediate == 0) return y;
  const Vector shared = RunMlp(layer.shared, h);
  const double gate = config_.shared_gate ? Sigmoid(Multiply(layer.shared_gate, h)[0]) : 1;
  for (size_t i = 0; i < y.size(); ++i) y[i] += gate * shared[i];
  return y;
}

}  // namespace mainarch::reference
