// SPDX-License-Identifier: MIT
//
// Small Programs made by hand, of random weights (fp32, one rank), with what no architecture of
// today asks for; and the same in fp64, op by op, one token at a time, from the ops' definitions.
#ifndef MAINARCH_TESTS_SUPPORT_PROGRAM_MAKER_H_
#define MAINARCH_TESTS_SUPPORT_PROGRAM_MAKER_H_

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace mainarch::test {

class ProgramMaker {
 public:
  ProgramMaker(int32_t hidden, int32_t vocab, uint32_t seed) : rng_(seed) {
    program = std::make_shared<backend::Program>();
    program->hidden = hidden;
    program->vocab = vocab;
    program->rms_eps = 1e-6f;
    program->max_position = 4096;
    program->x = Buffer("x", hidden);
  }

  backend::BufferId Buffer(const std::string& label, int64_t width) {
    program->buffers.push_back({label, backend::BufferType::kF32, width, 1});
    return static_cast<backend::BufferId>(program->buffers.size() - 1);
  }
  backend::WeightId Weight(const std::string& label, backend::WeightLayout layout, int64_t rows,
                           int64_t cols, float size) {
    std::normal_distribution<float> normal(0, size);
    std::vector<float>& values = values_->emplace_back(static_cast<size_t>(rows * cols));
    for (float& value : values) value = normal(rng_) + (size == 0.1f ? 1 : 0);
    backend::Weight weight;
    weight.label = label;
    weight.layout = layout;
    quant::Matrix matrix;
    matrix.format = quant::Format::kF32;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.data = {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
    weight.sources.push_back(matrix);
    weight.ranks = {{{0, 0, rows, 0, cols}}};
    program->weights.push_back(std::move(weight));
    program->storage = values_;
    return static_cast<backend::WeightId>(program->weights.size() - 1);
  }
  backend::WeightId Matrix(const std::string& label, int64_t rows, int64_t cols) {
    return Weight(label, backend::WeightLayout::kPanels, rows, cols,
                  1 / std::sqrt(static_cast<float>(cols)));
  }
  // A gate and an up, [rows, cols] each.
  backend::WeightId GateUp(const std::string& label, int64_t rows, int64_t cols) {
    const backend::WeightId id = Matrix(label, rows, cols);
    Matrix(label + ".up", rows, cols);
    const quant::Matrix up = program->weights.back().sources[0];
    program->weights.pop_back();
    backend::Weight& weight = program->weights.back();
    weight.layout = backend::WeightLayout::kGateUp;
    weight.sources.push_back(up);
    weight.ranks[0].push_back({1, 0, rows, 0, cols});
    return id;
  }
  // About 1, for norms.
  backend::WeightId Norm(const std::string& label, int64_t size) {
    return Weight(label, backend::WeightLayout::kVector, 1, size, 0.1f);
  }
  backend::WeightId Vector(const std::string& label, int64_t size, float spread) {
    return Weight(label, backend::WeightLayout::kVector, 1, size, spread);
  }
  int32_t Rope(int32_t rotary_dim) {
    backend::Rope rope;
    rope.rotary_dim = rotary_dim;
    for (int i = 0; i < rotary_dim / 2; ++i) {
      rope.inv_freq.push_back(std::pow(1e4, -2.0 * i / rotary_dim));
    }
    program->ropes.push_back(std::move(rope));
    return static_cast<int32_t>(program->ropes.size()) - 1;
  }

  std::shared_ptr<backend::Program> program;

 private:
  std::mt19937 rng_;
  std::shared_ptr<std::deque<std::vector<float>>> values_ =
      std::make_shared<std::deque<std::vector<float>>>();
};

// One sequence in fp64. fp32 KV only: nothing is rounded.
class ProgramReference {
 public:
  using Row = std::vector<double>;

  explicit ProgramReference(const backend::Program& program) : p_(program) {}

  // Runs one more token; `input`, what InputOps take. Returns its logits.
  Row Token(uint32_t token, const Row& input = {}) {
    token_ = token;
    input_ = input;
    for (const backend::Buffer& buffer : p_.buffers) {
      rows_[buffer.label] = Row(static_cast<size_t>(buffer.width));
    }
    for (const backend::Op& op : p_.ops) {
      std::visit([this](const auto& o) { Run(o); }, op);
    }
    ++position_;
    return logits_;
  }
  const Row& buffer(backend::BufferId id) const {
    return rows_.at(p_.buffers[static_cast<size_t>(id)].label);
  }

 private:
  Row& At(backend::BufferId id) { return rows_[p_.buffers[static_cast<size_t>(id)].label]; }
  Row WeightRow(backend::WeightId id, int64_t row, size_t source = 0) const {
    const quant::Matrix& m = p_.weights[static_cast<size_t>(id)].sources[source];
    std::vector<float> values(static_cast<size_t>(m.cols));
    quant::DecodeRow(m, row, 0, m.cols, values.data());
    return Row(values.begin(), values.end());
  }
  Row Multiply(backend::WeightId id, const Row& x, size_t source = 0) const {
    Row y;
    for (int64_t r = 0; r < p_.weights[static_cast<size_t>(id)].sources[source].rows; ++r) {
      const Row w = WeightRow(id, r, source);
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += w[i] * x[i];
      y.push_back(sum);
    }
    return y;
  }
  void Norm(backend::WeightId id, double* x) const {
    const Row w = WeightRow(id, 0);
    double sum = 0;
    for (size_t i = 0; i < w.size(); ++i) sum += x[i] * x[i];
    const double scale =
        1 / std::sqrt(sum / static_cast<double>(w.size()) + static_cast<double>(p_.rms_eps));
    for (size_t i = 0; i < w.size(); ++i) x[i] *= scale * w[i];
  }
  static double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  void Run(const backend::EmbedOp& o) { At(o.x) = WeightRow(o.table, token_); }
  void Run(const backend::NormMatmulOp& o) {
    Row h = At(o.x);
    Norm(o.norm, h.data());
    At(o.out) = Multiply(o.w, h);
  }
  void Run(const backend::MatmulAddOp& o) {
    const Row y = Multiply(o.w, At(o.in));
    for (size_t i = 0; i < y.size(); ++i) At(o.x)[i] += y[i];
  }
  void Run(const backend::MatmulOp& o) { At(o.partial) = Multiply(o.w, At(o.in)); }
  void Run(const backend::AddNormedOp& o) {
    Row y = At(o.y);
    if (o.norm != backend::kNone) Norm(o.norm, y.data());
    Row& x = At(o.x);
    for (size_t i = 0; i < x.size(); ++i) x[i] = (o.add ? x[i] : 0) + double{o.scale} * y[i];
  }
  void Run(const backend::NormGateUpOp& o) {  // SiLU, no biases
    Row h = At(o.x);
    if (o.norm != backend::kNone) Norm(o.norm, h.data());
    At(o.act) = Multiply(o.w, h);
    const Row up = Multiply(o.w, h, 1);
    for (size_t i = 0; i < up.size(); ++i) At(o.act)[i] *= Sigmoid(At(o.act)[i]) * up[i];
  }
  void Run(const backend::AddBiasOp& o) {
    const Row bias = WeightRow(o.bias, 0);
    for (size_t i = 0; i < bias.size(); ++i) At(o.x)[i] += bias[i];
  }
  void Run(const backend::LogitsOp& o) {
    Row h = At(o.x);
    Norm(o.norm, h.data());
    logits_ = Multiply(o.w, h);
  }
  void Run(const backend::RecurrentOp& o) {
    Row& state = states_[{o.cache, o.layer}];
    const size_t width = At(o.out).size();
    state.resize(width);
    for (size_t i = 0; i < width; ++i) {
      const double z = Sigmoid(At(o.in)[i]);
      state[i] = (1 - z) * state[i] + z * At(o.in)[width + i];
    }
    At(o.out) = state;
  }
  void Run(const backend::GatedDeltaOp& o);
  void Run(const backend::TapOp& o) { At(o.out) = At(o.x); }
  void Run(const backend::InputOp& o) { At(o.x) = input_; }
  void Run(const backend::AttentionOp& o);
  template <class T>
  void Run(const T&) {}  // what these Programs have none of

  void Turn(int32_t rope, double* head) const {
    if (rope == backend::kNone) return;
    const backend::Rope& r = p_.ropes[static_cast<size_t>(rope)];
    const size_t half = r.inv_freq.size();
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position_) * r.inv_freq[i];
      const double a = head[i], b = head[i + half];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  const backend::Program& p_;
  uint32_t token_ = 0;
  size_t position_ = 0;
  Row input_, logits_;
  std::map<std::string, Row> rows_;
  std::map<std::pair<int32_t, int32_t>, Row> states_;
  std::map<std::pair<int32_t, int32_t>, std::vector<std::pair<Row, Row>>> kv_;  // of each position
};

// As the paper has it: S is values by keys, S = alpha S (I - beta k k^T) + beta v k^T, o = S q.
inline void ProgramReference::Run(const backend::GatedDeltaOp& o) {
  const size_t n = static_cast<size_t>(o.key_dim), m = static_cast<size_t>(o.value_dim);
  const size_t heads = static_cast<size_t>(o.value_heads), taps = static_cast<size_t>(o.taps);
  const size_t keys = static_cast<size_t>(o.key_heads), channels = 2 * keys * n + heads * m;
  Row& state = states_[{o.cache, o.layer}];  // S of every head, then the rows before this one
  state.resize(heads * m * n + (taps - 1) * channels);
  double* const tail = state.data() + heads * m * n;
  Row x(tail, tail + (taps - 1) * channels), c(channels);
  const Row in = At(o.in), conv = WeightRow(o.conv, 0);
  x.insert(x.end(), in.begin(), in.begin() + static_cast<ptrdiff_t>(channels));
  for (size_t i = 0; i < channels; ++i) {
    for (size_t tap = 0; tap < taps; ++tap) c[i] += conv[i * taps + tap] * x[tap * channels + i];
    c[i] *= Sigmoid(c[i]);
  }
  std::copy(x.begin() + static_cast<ptrdiff_t>(channels), x.end(), tail);
  const auto unit = [&](size_t at) {
    Row out(c.begin() + static_cast<ptrdiff_t>(at), c.begin() + static_cast<ptrdiff_t>(at + n));
    double sum = 1e-6;
    for (const double v : out) sum += v * v;
    for (double& v : out) v /= std::sqrt(sum);
    return out;
  };
  for (size_t h = 0; h < heads; ++h) {
    const size_t key = h / (heads / keys) * n;
    const Row q = unit(key), k = unit(keys * n + key);
    const double beta = Sigmoid(At(o.gates)[h]);
    const double a = At(o.gates)[heads + h] + WeightRow(o.dt_bias, 0)[h];
    const double alpha = std::exp(-std::exp(WeightRow(o.decay, 0)[h]) * std::log1p(std::exp(a)));
    Row y(m);
    for (size_t j = 0; j < m; ++j) {
      double* const s = &state[(h * m + j) * n];
      double held = 0;
      for (size_t i = 0; i < n; ++i) held += s[i] * k[i];
      for (size_t i = 0; i < n; ++i) {
        s[i] = alpha * (s[i] - beta * held * k[i]) + beta * c[2 * keys * n + h * m + j] * k[i];
        y[j] += s[i] * q[i] / std::sqrt(static_cast<double>(n));
      }
    }
    Norm(o.norm, y.data());
    for (size_t j = 0; j < m; ++j) {
      const double z = in[channels + h * m + j];
      At(o.out)[h * m + j] = y[j] * z * Sigmoid(z);
    }
  }
}

inline void ProgramReference::Run(const backend::AttentionOp& o) {
  const backend::PagedCache& c = backend::CacheOf(p_, o);
  const size_t kd = static_cast<size_t>(c.key_dim), vd = static_cast<size_t>(c.value_dim);
  const size_t heads = static_cast<size_t>(o.heads), kv_heads = static_cast<size_t>(c.kv_heads);
  Row qkv = At(o.qkv);
  if (o.bias != backend::kNone) {
    const Row bias = WeightRow(o.bias, 0);
    for (size_t i = 0; i < qkv.size(); ++i) qkv[i] += bias[i];
  }
  for (size_t h = 0; h < heads + kv_heads; ++h) {
    const backend::WeightId norm = h < heads ? o.q_norm : o.k_norm;
    if (norm != backend::kNone) Norm(norm, &qkv[h * kd]);
    Turn(o.rope, &qkv[h * kd]);
  }
  const auto at = [&](size_t begin, size_t count) {
    return Row(qkv.begin() + static_cast<ptrdiff_t>(begin),
               qkv.begin() + static_cast<ptrdiff_t>(begin + count));
  };
  auto& tokens = kv_[{o.cache, o.layer}];
  tokens.emplace_back(at(heads * kd, kv_heads * kd),
                      at((heads + kv_heads) * kd, kv_heads * vd));
  const size_t window = static_cast<size_t>(c.window);
  const size_t first = window == 0 || tokens.size() <= window ? 0 : tokens.size() - window;
  for (size_t h = 0; h < heads; ++h) {
    const size_t kv = h / (heads / kv_heads);
    Row p;
    double max = o.sinks == backend::kNone ? -INFINITY : WeightRow(o.sinks, 0)[h];
    double sum = 0;
    for (size_t t = first; t < tokens.size(); ++t) {
      double s = 0;
      for (size_t d = 0; d < kd; ++d) s += qkv[h * kd + d] * tokens[t].first[kv * kd + d];
      p.push_back(s * o.scale);
      max = std::max(max, p.back());
    }
    if (o.sinks != backend::kNone) sum = std::exp(WeightRow(o.sinks, 0)[h] - max);
    for (double& s : p) sum += s = std::exp(s - max);
    for (size_t d = 0; d < vd; ++d) {
      double out = 0;
      for (size_t t = first; t < tokens.size(); ++t) {
        out += p[t - first] / sum * tokens[t].second[kv * vd + d];
      }
      if (o.gate != backend::kNone) out *= Sigmoid(At(o.gate)[h * vd + d]);
      At(o.out)[h * vd + d] = out;
    }
  }
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_PROGRAM_MAKER_H_
