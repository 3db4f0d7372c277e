// SPDX-License-Identifier: MIT
#include "reference/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "model/linear.h"
#include "reference/kv_rounding.h"

namespace mainarch::reference {
namespace {

using Vector = std::vector<double>;

Vector RowOf(const quant::Matrix& m, int64_t row) {
  std::vector<float> exact(static_cast<size_t>(m.cols));
  quant::DecodeRow(m, row, 0, m.cols, exact.data());
  return Vector(exact.begin(), exact.end());
}

Vector Multiply(const quant::Matrix& m, const Vector& x) {
  Vector y(static_cast<size_t>(m.rows));
  std::vector<float> row(static_cast<size_t>(m.cols));
  for (int64_t r = 0; r < m.rows; ++r) {
    quant::DecodeRow(m, r, 0, m.cols, row.data());
    double sum = 0;
    for (size_t c = 0; c < row.size(); ++c) sum += static_cast<double>(row[c]) * x[c];
    y[static_cast<size_t>(r)] = sum;
  }
  return y;
}

// x / sqrt(mean(x^2) + eps) * w over n values, in place.
void RmsNorm(const Vector& w, double eps, double* x) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * x[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(w.size()) + eps);
  for (size_t i = 0; i < w.size(); ++i) x[i] *= scale * w[i];
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

Vector SwiGlu(const quant::Matrix& gate, const quant::Matrix& up, const quant::Matrix& down,
              const Vector& h) {
  Vector g = Multiply(gate, h);
  const Vector u = Multiply(up, h);
  for (size_t i = 0; i < g.size(); ++i) g[i] = Silu(g[i]) * u[i];
  return Multiply(down, g);
}

void AddTo(const Vector& y, Vector* x) {
  for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
}

void Softmax(Vector* x) {
  const double max = *std::max_element(x->begin(), x->end());
  double sum = 0;
  for (double& value : *x) sum += value = std::exp(value - max);
  for (double& value : *x) value /= sum;
}

// Frequencies of models.md §1.5, written down again here: a shared mistake would hide.
Vector InverseFrequencies(const model::RopeConfig& rope) {
  const int half = rope.rotary_dim / 2;
  Vector f(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    f[static_cast<size_t>(i)] = 1.0 / std::pow(rope.theta, i / static_cast<double>(half));
  }
  if (rope.llama3) {
    const double context = static_cast<double>(rope.original_max_position);
    for (double& value : f) {
      const double wavelength = 2 * M_PI / value;
      const double smooth = (context / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      if (wavelength > context / rope.low_freq_factor) {
        value /= rope.factor;
      } else if (wavelength >= context / rope.high_freq_factor) {
        value = (1 - smooth) * value / rope.factor + smooth * value;
      }
    }
  }
  if (!rope.yarn) return f;
  const double length = static_cast<double>(rope.original_max_position);
  auto find = [&](double n) {
    return rope.rotary_dim * std::log(length / (n * 2 * M_PI)) / (2 * std::log(rope.theta));
  };
  double low = find(rope.beta_fast), high = find(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (int i = 0; i < half; ++i) {
    const double t = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
    double& value = f[static_cast<size_t>(i)];
    value = value * (1 - t) + value / rope.factor * t;
  }
  return f;
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const file::Checkpoint> checkpoint,
                 const model::ModelConfig& config, quant::KvType rounding)
    : checkpoint_(std::move(checkpoint)),
      config_(config),
      rounding_(rounding),
      layers_(static_cast<size_t>(config.layers)),
      layer_outputs_(static_cast<size_t>(config.layers)) {
  inv_freq_.push_back(InverseFrequencies(config.rope));
  for (const model::RopeConfig& rope : config.more_ropes) {
    inv_freq_.push_back(InverseFrequencies(rope));
  }
}

StatusOr<std::unique_ptr<Decoder>> Decoder::Create(
    std::shared_ptr<const file::Checkpoint> checkpoint, const model::ModelConfig& config,
    quant::KvType rounding) {
  std::unique_ptr<Decoder> decoder(new Decoder(std::move(checkpoint), config, rounding));
  RETURN_IF_ERROR(decoder->FindWeights());
  return decoder;
}

Status Decoder::FindWeights() {
  const file::Checkpoint& c = *checkpoint_;
  const int64_t h = config_.hidden, hd = config_.head_dim;
  const int64_t q = config_.heads * hd, kv = config_.kv_heads * hd;
  const model::AttentionConfig& has = config_.attention;
  const int64_t q_rows = has.output_gate ? 2 * q : q;
  auto linear = [&](quant::Matrix* out, const std::string& name, int64_t rows, int64_t cols) {
    ASSIGN_OR_RETURN(*out, model::FindLinear(c, name, rows, cols));
    return OkStatus();
  };
  auto vector = [&](quant::Matrix* out, const std::string& name, int64_t size) {
    ASSIGN_OR_RETURN(*out, model::FindVector(c, name, size));
    return OkStatus();
  };
  RETURN_IF_ERROR(linear(&embedding_, "model.embed_tokens", config_.vocab, h));
  RETURN_IF_ERROR(vector(&final_norm_, "model.norm.weight", h));
  head_ = embedding_;
  if (!config_.tied_embeddings) RETURN_IF_ERROR(linear(&head_, "lm_head", config_.vocab, h));
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const std::string p = absl::StrCat("model.layers.", i, ".");
    RETURN_IF_ERROR(vector(&layer.input_norm, p + "input_layernorm.weight", h));
    RETURN_IF_ERROR(vector(&layer.post_norm, p + "post_attention_layernorm.weight", h));
    if (has.qk_norm) {
      RETURN_IF_ERROR(vector(&layer.q_norm, p + "self_attn.q_norm.weight", hd));
      RETURN_IF_ERROR(vector(&layer.k_norm, p + "self_attn.k_norm.weight", hd));
    }
    if (has.qkv_bias) {
      RETURN_IF_ERROR(vector(&layer.q_bias, p + "self_attn.q_proj.bias", q_rows));
      RETURN_IF_ERROR(vector(&layer.k_bias, p + "self_attn.k_proj.bias", kv));
      RETURN_IF_ERROR(vector(&layer.v_bias, p + "self_attn.v_proj.bias", kv));
    }
    if (has.o_bias) RETURN_IF_ERROR(vector(&layer.o_bias, p + "self_attn.o_proj.bias", h));
    if (has.sinks) RETURN_IF_ERROR(vector(&layer.sinks, p + "self_attn.sinks", config_.heads));
    RETURN_IF_ERROR(linear(&layer.q, p + "self_attn.q_proj", q_rows, h));
    RETURN_IF_ERROR(linear(&layer.k, p + "self_attn.k_proj", kv, h));
    RETURN_IF_ERROR(linear(&layer.v, p + "self_attn.v_proj", kv, h));
    RETURN_IF_ERROR(linear(&layer.o, p + "self_attn.o_proj", h, q));
    layer.sparse = config_.sparse_layer[i];
    if (!layer.sparse) {
      const int64_t width = config_.intermediate;
      RETURN_IF_ERROR(linear(&layer.gate, p + "mlp.gate_proj", width, h));
      RETURN_IF_ERROR(linear(&layer.up, p + "mlp.up_proj", width, h));
      RETURN_IF_ERROR(linear(&layer.down, p + "mlp.down_proj", h, width));
      continue;
    }
    RETURN_IF_ERROR(linear(&layer.router, p + "mlp.gate", config_.experts, h));
    layer.experts.resize(static_cast<size_t>(config_.experts) * 3);
    for (size_t e = 0; e < layer.experts.size() / 3; ++e) {
      const std::string name = absl::StrCat(p, "mlp.experts.", e, ".");
      const int64_t width = config_.moe_intermediate;
      RETURN_IF_ERROR(linear(&layer.experts[3 * e], name + "gate_proj", width, h));
      RETURN_IF_ERROR(linear(&layer.experts[3 * e + 1], name + "up_proj", width, h));
      RETURN_IF_ERROR(linear(&layer.experts[3 * e + 2], name + "down_proj", h, width));
    }
  }
  return OkStatus();
}

Status Decoder::Extend(absl::Span<const uint32_t> tokens) {
  for (uint32_t token : tokens) {
    if (token >= static_cast<uint32_t>(config_.vocab)) {
      return Error(Code::kInvalidArgument, "token ", token, " in a vocabulary of ", config_.vocab);
    }
  }
  for (uint32_t token : tokens) RETURN_IF_ERROR(Token(token));
  return OkStatus();
}

void Decoder::Truncate(size_t position) {
  position_ = std::min(position_, position);
  const size_t width =
      static_cast<size_t>(config_.kv_heads) * static_cast<size_t>(config_.head_dim);
  for (Layer& layer : layers_) {
    layer.keys.resize(position_ * width);
    layer.values.resize(position_ * width);
  }
}

std::pair<absl::Span<const double>, absl::Span<const double>> Decoder::stored(
    size_t layer, size_t position) const {
  const size_t width =
      static_cast<size_t>(config_.kv_heads) * static_cast<size_t>(config_.head_dim);
  return {absl::MakeConstSpan(layers_[layer].keys).subspan(position * width, width),
          absl::MakeConstSpan(layers_[layer].values).subspan(position * width, width)};
}

Status Decoder::Token(uint32_t token) {
  Vector x = RowOf(embedding_, token);
  for (size_t i = 0; i < layers_.size(); ++i) {
    RETURN_IF_ERROR(Attention(i, &x));
    Ffn(layers_[i], &x);
    layer_outputs_[i] = x;
  }
  RmsNorm(RowOf(final_norm_, 0), static_cast<double>(config_.rms_eps), x.data());
  logits_ = Multiply(head_, x);
  ++position_;
  return OkStatus();
}

void Decoder::Rotate(int32_t rope, double* head) const {
  if (rope == model::kNoRope) return;
  const size_t index = static_cast<size_t>(rope);
  const model::RopeConfig& config = index == 0 ? config_.rope : config_.more_ropes[index - 1];
  const Vector& inv_freq = inv_freq_[index];
  const size_t half = inv_freq.size();
  const double m = config.yarn ? config.attention_factor : 1.0;
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position_) * inv_freq[i];
    const double c = std::cos(angle) * m, s = std::sin(angle) * m;
    const double a = head[i], b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = b * c + a * s;
  }
}

// Compares each element with x, and puts it in its place.
Status Decoder::TakeStored(quant::KvForm form, absl::Span<const float> stored,
                           const std::string& what, Vector* x) const {
  const size_t hd = static_cast<size_t>(config_.head_dim);
  const size_t copies = stored.size() / x->size();
  if (copies == 0 || stored.size() != copies * x->size()) {
    return Error(Code::kInternal, what, ": ", stored.size(), " elements in the cache, ", x->size(),
                 " by the reference");
  }
  for (size_t head = 0; head < x->size() / hd; ++head) {
    const absl::Span<double> exact = absl::MakeSpan(*x).subspan(head * hd, hd);
    Vector held(hd);
    for (size_t i = 0; i < hd; ++i) {
      const float* const value = &stored[head * copies * hd + i];
      for (size_t copy = 1; copy < copies; ++copy) {
        if (value[copy * hd] == *value) continue;
        return Error(Code::kInternal, what, ", head ", head, ", element ", i, " is ", *value,
                     " in the cache of one rank and ", value[copy * hd], " in another's");
      }
      const double limit = Allowance(form, exact, i);
      if (!(std::fabs(double{*value} - exact[i]) <= limit)) {
        return Error(Code::kInternal, what, ", head ", head, ", element ", i, " is ", *value,
                     " in the cache and ", exact[i], " by the reference, further off than ", limit);
      }
      held[i] = double{*value};
    }
    if (const int block = WorstBlock(form, exact, held); block >= 0) {
      return Error(Code::kInternal, what, ", head ", head, ", block ", block,
                   " is further from the reference in the cache than with the best scale");
    }
    std::copy(held.begin(), held.end(), exact.begin());
  }
  return OkStatus();
}

Status Decoder::TakeFromCache(size_t layer, Vector* k, Vector* v) const {
  std::vector<float> stored_k, stored_v;
  RETURN_IF_ERROR(cache_(layer, position_, &stored_k, &stored_v));
  const std::string where = absl::StrCat(" of position ", position_, " in layer ", layer);
  const quant::KvTypeInfo& type = quant::InfoOf(rounding_);
  RETURN_IF_ERROR(TakeStored(type.k, stored_k, absl::StrCat("K", where), k));
  return TakeStored(type.v, stored_v, absl::StrCat("V", where), v);
}

Decoder::Heads Decoder::MakeHeads(size_t layer_index, const Vector& x) const {
  const Layer& layer = layers_[layer_index];
  const model::AttentionConfig& has = config_.attention;
  const size_t hd = static_cast<size_t>(config_.head_dim);
  const double eps = static_cast<double>(config_.rms_eps);
  Vector h = x;
  RmsNorm(RowOf(layer.input_norm, 0), eps, h.data());
  Heads out = {Multiply(layer.q, h), Multiply(layer.k, h), Multiply(layer.v, h), {}};
  if (has.qkv_bias) {
    AddTo(RowOf(layer.q_bias, 0), &out.q);
    AddTo(RowOf(layer.k_bias, 0), &out.k);
    AddTo(RowOf(layer.v_bias, 0), &out.v);
  }
  if (has.output_gate) {
    // Head by head: its queries, then its gate.
    const Vector both = std::move(out.q);
    out.q.clear();
    for (size_t at = 0; at < both.size(); at += 2 * hd) {
      const auto head = both.begin() + static_cast<ptrdiff_t>(at);
      const auto middle = head + static_cast<ptrdiff_t>(hd);
      out.q.insert(out.q.end(), head, middle);
      out.gate.insert(out.gate.end(), middle, middle + static_cast<ptrdiff_t>(hd));
    }
  }
  const int32_t rope = config_.AttentionOf(layer_index).rope;
  const auto norm_and_turn = [&](const quant::Matrix& norm, Vector* heads) {
    for (size_t at = 0; at < heads->size(); at += hd) {
      if (has.qk_norm) RmsNorm(RowOf(norm, 0), eps, &(*heads)[at]);
      Rotate(rope, &(*heads)[at]);
      if (quant::InfoOf(rounding_).turns) TurnHead(absl::MakeSpan(*heads).subspan(at, hd));
    }
  };
  norm_and_turn(layer.q_norm, &out.q);
  norm_and_turn(layer.k_norm, &out.k);
  return out;
}

Status Decoder::Attention(size_t layer_index, Vector* x) {
  Layer* layer = &layers_[layer_index];
  const size_t heads = static_cast<size_t>(config_.heads);
  const size_t kv_heads = static_cast<size_t>(config_.kv_heads);
  const size_t hd = static_cast<size_t>(config_.head_dim);
  auto [q, k, v, gate] = MakeHeads(layer_index, *x);
  if (cache_) {
    RETURN_IF_ERROR(TakeFromCache(layer_index, &k, &v));
  } else {
    for (size_t at = 0; at < k.size(); at += hd) {
      const absl::Span<double> key = absl::MakeSpan(k).subspan(at, hd);
      const absl::Span<double> value = absl::MakeSpan(v).subspan(at, hd);
      if (rounder_) {
        rounder_(layer_index, position_, false, key);
        rounder_(layer_index, position_, true, value);
        continue;
      }
      RoundHead(quant::InfoOf(rounding_).k, key);
      RoundHead(quant::InfoOf(rounding_).v, value);
    }
  }
  layer->keys.insert(layer->keys.end(), k.begin(), k.end());
  layer->values.insert(layer->values.end(), v.begin(), v.end());
  const size_t window = static_cast<size_t>(config_.AttentionOf(layer_index).window);
  const size_t first = window == 0 || position_ < window ? 0 : position_ + 1 - window;
  const Vector sinks = config_.attention.sinks ? RowOf(layer->sinks, 0) : Vector();
  Vector out(heads * hd, 0.0);
  for (size_t j = 0; j < heads; ++j) {
    const size_t kv = j / (heads / kv_heads);
    Vector p;
    for (size_t t = first; t <= position_; ++t) {
      const double* key = &layer->keys[(t * kv_heads + kv) * hd];
      p.push_back(std::inner_product(key, key + hd, &q[j * hd], 0.0) /
                  std::sqrt(static_cast<double>(hd)));
    }
    if (!sinks.empty()) p.push_back(sinks[j]);
    Softmax(&p);
    for (size_t t = first; t <= position_; ++t) {
      const double* value = &layer->values[(t * kv_heads + kv) * hd];
      for (size_t d = 0; d < hd; ++d) out[j * hd + d] += p[t - first] * value[d];
    }
  }
  for (size_t i = 0; i < gate.size(); ++i) out[i] *= 1 / (1 + std::exp(-gate[i]));
  AddTo(Multiply(layer->o, out), x);
  if (config_.attention.o_bias) AddTo(RowOf(layer->o_bias, 0), x);
  return OkStatus();
}

void Decoder::Ffn(const Layer& layer, Vector* x) {
  Vector h = *x;
  RmsNorm(RowOf(layer.post_norm, 0), static_cast<double>(config_.rms_eps), h.data());
  const Vector y =
      layer.sparse ? MixExperts(layer, h) : SwiGlu(layer.gate, layer.up, layer.down, h);
  for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
}

Vector Decoder::MixExperts(const Layer& layer, const Vector& h) const {
  Vector p = Multiply(layer.router, h);
  Softmax(&p);
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  order.resize(static_cast<size_t>(config_.experts_per_token));
  double sum = 0;
  for (size_t e : order) sum += p[e];
  Vector y(h.size(), 0.0);
  for (size_t e : order) {
    const double weight = config_.norm_topk_prob ? p[e] / sum : p[e];
    const Vector out =
        SwiGlu(layer.experts[3 * e], layer.experts[3 * e + 1], layer.experts[3 * e + 2], h);
    for (size_t i = 0; i < y.size(); ++i) y[i] += weight * out[i];
  }
  return y;
}

}  // namespace mainarch::reference
