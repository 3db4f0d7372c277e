// SPDX-License-Identifier: MIT
#include "reference/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "reference/kv_rounding.h"
#include "reference/math.h"

namespace mainarch::reference {
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

Status Decoder::Extend(absl::Span<const uint32_t> tokens) {
  for (uint32_t token : tokens) {
    if (token >= static_cast<uint32_t>(config_.vocab)) {
      return Error(Code::kInvalidArgument, "token ", token, " in a vocabulary of ", config_.vocab);
    }
  }
  while (position_ < tokens_.size()) RETURN_IF_ERROR(Token(tokens_[position_]));
  for (uint32_t token : tokens) {
    tokens_.push_back(token);
    RETURN_IF_ERROR(Token(token));
  }
  return OkStatus();
}

void Decoder::Truncate(size_t position) {
  tokens_.resize(std::min(tokens_.size(), position));
  position_ = config_.delta.key_heads > 0 ? 0 : tokens_.size();
  const auto cut = [this](std::vector<double>* all, int64_t width) {
    if (!all->empty()) all->resize(position_ * static_cast<size_t>(width));
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const int64_t stored = static_cast<int64_t>(stored_heads(i));
    cut(&layer.keys, stored * static_cast<int64_t>(key_dim()));
    cut(&layer.values, stored * static_cast<int64_t>(value_dim()));
    cut(&layer.near_keys, stored * static_cast<int64_t>(key_dim()));
    cut(&layer.near_values, stored * static_cast<int64_t>(value_dim()));
    cut(&layer.head_keys, int64_t{config_.heads} * config_.head_dim);
    cut(&layer.head_values, int64_t{config_.heads} * config_.latent.value);
    layer.delta_rows.clear();
    layer.delta_state.clear();
  }
}

std::pair<absl::Span<const double>, absl::Span<const double>> Decoder::stored(
    size_t layer, size_t position) const {
  const size_t keys = stored_heads(layer) * key_dim(), values = stored_heads(layer) * value_dim();
  return {absl::MakeConstSpan(layers_[layer].keys).subspan(position * keys, keys),
          absl::MakeConstSpan(layers_[layer].values).subspan(position * values, values)};
}

// The factor of embeddings is of their own type.
double RoundTo(quant::Format format, double x) {
  if (format == quant::Format::kBF16) {
    return quant::FloatFromBf16(quant::Bf16FromFloat(static_cast<float>(x)));
  }
  if (format == quant::Format::kF16) {
    return quant::FloatFromF16(quant::F16FromFloat(static_cast<float>(x)));
  }
  return x;
}

Status Decoder::Token(uint32_t token) {
  Vector x = RowOf(embedding_, token);
  const double scale = RoundTo(embedding_.format, config_.embedding_scale);
  for (double& value : x) value *= scale;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].is_delta) {
      Delta(i, &x);
    } else {
      RETURN_IF_ERROR(config_.latent.latent > 0 ? LatentAttention(i, &x) : Attention(i, &x));
    }
    Ffn(layers_[i], &x);
    layer_outputs_[i] = x;
  }
  Norm(final_norm_, &x);
  logits_ = Multiply(head_, x);
  for (double& logit : logits_) logit *= config_.logits_scale;
  ++position_;
  return OkStatus();
}

void Decoder::Norm(const quant::Matrix& weight, Vector* x) const {
  RmsNorm(RowOf(weight, 0), config_.norms.plus_one ? 1 : 0, static_cast<double>(config_.rms_eps),
          x->data());
}

void Decoder::AddBlock(const quant::Matrix& norm, Vector y, Vector* x) const {
  if (config_.norms.after) Norm(norm, &y);
  for (size_t i = 0; i < y.size(); ++i) (*x)[i] += config_.residual_scale * y[i];
}

void Decoder::Rotate(int32_t rope, double* head) const {
  if (rope == model::kNoRope) return;
  const size_t index = static_cast<size_t>(rope);
  const model::RopeConfig& config = index == 0 ? config_.rope : config_.more_ropes[index - 1];
  const Vector& inv_freq = inv_freq_[index];
  const size_t half = inv_freq.size();
  const double m = config.attention_factor;  // 1 where there is none
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
                           const std::string& what, size_t dim, Vector* x) const {
  const size_t hd = dim;
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

quant::KvType Decoder::TypeOf(size_t layer) const {
  size_t first = 0, last = layers_.size() - 1;  // that attend
  while (first < last && config_.IsDelta(first)) ++first;
  while (first < last && config_.IsDelta(last)) --last;
  const bool outer = layer == first || layer == last;
  const int32_t window = config_.AttentionOf(layer).window;
  const bool windowed = window > 0 && window < config_.max_position;
  return (tiers_.outer && outer) || (tiers_.any() && windowed) ? model::kNearType : rounding_;
}

bool Decoder::HasNear(size_t layer) const {
  return tiers_.near && TypeOf(layer) == rounding_;
}

const double* Decoder::StoredAt(size_t index, size_t position, bool is_value) const {
  const Layer& layer = layers_[index];
  const size_t first = static_cast<size_t>(model::kNearFirst), last = static_cast<size_t>(model::kNearLast);
  const bool near = !layer.near_keys.empty() && (position < first || position + last > position_);
  const Vector& all = is_value ? near ? layer.near_values : layer.values : near ? layer.near_keys : layer.keys;
  return &all[position * stored_heads(index) * (is_value ? value_dim() : key_dim())];
}

Status Decoder::Store(size_t layer, quant::KvType held, const CacheReader& cache, Vector* k, Vector* v) const {
  std::vector<float> stored_k, stored_v;
  if (cache) RETURN_IF_ERROR(cache(layer, position_, &stored_k, &stored_v));
  const quant::KvTypeInfo& type = quant::InfoOf(held);
  if (!stored_k.empty() || !stored_v.empty()) {
    const std::string where = absl::StrCat(" of position ", position_, " in layer ", layer);
    RETURN_IF_ERROR(TakeStored(type.k, stored_k, absl::StrCat("K", where), key_dim(), k));
    return TakeStored(type.v, stored_v, absl::StrCat("V", where), value_dim(), v);
  }
  for (size_t head = 0; head < stored_heads(layer); ++head) {
    const absl::Span<double> key = absl::MakeSpan(*k).subspan(head * key_dim(), key_dim());
    const absl::Span<double> value = absl::MakeSpan(*v).subspan(head * value_dim(), value_dim());
    if (rounder_) {
      rounder_(layer, position_, false, key);
      rounder_(layer, position_, true, value);
      continue;
    }
    RoundHead(type.k, key);
    RoundHead(type.v, value);
  }
  return OkStatus();
}

void Decoder::RoundAgain(size_t position, const HeadRounder& rounder) {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    Layer& l = layers_[layer];
    if (l.is_delta) continue;
    for (size_t head = 0; head < stored_heads(layer); ++head) {
      const size_t at = position * stored_heads(layer) + head;
      rounder(layer, position, false, absl::MakeSpan(l.keys).subspan(at * key_dim(), key_dim()));
      rounder(layer, position, true, absl::MakeSpan(l.values).subspan(at * value_dim(), value_dim()));
    }
  }
}

// Q, K and V with their biases.
void Decoder::Products(size_t index, const Vector& h, Heads* out) const {
  const Layer& layer = layers_[index];
  const model::AttentionConfig& has = config_.attention;
  if (!has.fused_qkv) {
    *out = {Multiply(layer.q, h), Multiply(layer.k, h), Multiply(layer.v, h), {}};
    if (!has.qkv_bias) return;
    AddTo(RowOf(layer.q_bias, 0), &out->q);
    AddTo(RowOf(layer.k_bias, 0), &out->k);
    AddTo(RowOf(layer.v_bias, 0), &out->v);
    return;
  }
  Vector all = Multiply(layer.qkv, h);
  if (has.qkv_bias) AddTo(RowOf(layer.qkv_bias, 0), &all);
  const auto k = all.begin() + ptrdiff_t{config_.heads} * config_.head_dim;
  const auto v = k + ptrdiff_t{config_.KvHeadsOf(index)} * config_.head_dim;
  *out = {Vector(all.begin(), k), Vector(k, v), Vector(v, all.end()), {}};
}

// Each head of `from` as caches store it: zeros behind.
void Widen(int32_t from, size_t wide, std::vector<double>* heads) {
  const size_t hd = static_cast<size_t>(from);
  if (wide == hd) return;
  std::vector<double> out(heads->size() / hd * wide, 0.0);
  for (size_t i = 0; i < heads->size(); ++i) out[i / hd * wide + i % hd] = (*heads)[i];
  *heads = std::move(out);
}

Decoder::Heads Decoder::MakeHeads(size_t layer_index, const Vector& x) const {
  const Layer& layer = layers_[layer_index];
  const model::AttentionConfig& has = config_.attention;
  const size_t hd = static_cast<size_t>(config_.head_dim);
  Vector h = x;
  if (config_.norms.before) Norm(layer.input_norm, &h);
  Heads out;
  Products(layer_index, h, &out);
  if (has.wide_qk_norm) {
    const double eps = static_cast<double>(config_.rms_eps);
    RmsNorm(RowOf(layer.q_norm, 0), 0, eps, out.q.data());
    RmsNorm(RowOf(layer.k_norm, 0), 0, eps, out.k.data());
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
      if (has.qk_norm) {
        RmsNorm(RowOf(norm, 0), config_.norms.plus_one ? 1 : 0,
                static_cast<double>(config_.rms_eps), &(*heads)[at]);
      }
      Rotate(rope, &(*heads)[at]);
    }
    Widen(config_.head_dim, key_dim(), heads);
    for (size_t at = 0; at < heads->size() && quant::InfoOf(TypeOf(layer_index)).turns; at += key_dim()) {
      TurnHead(absl::MakeSpan(*heads).subspan(at, key_dim()));
    }
  };
  norm_and_turn(layer.q_norm, &out.q);
  norm_and_turn(layer.k_norm, &out.k);
  for (double& value : out.v) value *= has.value_scale;
  Widen(config_.ValueDim(), value_dim(), &out.v);
  return out;
}

Status Decoder::Attention(size_t layer_index, Vector* x) {
  Layer* layer = &layers_[layer_index];
  const size_t heads = static_cast<size_t>(config_.heads);
  const size_t kv_heads = stored_heads(layer_index);
  const size_t vd = static_cast<size_t>(config_.ValueDim()), wide = key_dim();
  auto [q, k, v, gate] = MakeHeads(layer_index, *x);
  if (HasNear(layer_index)) {
    Vector near_k = k, near_v = v;
    RETURN_IF_ERROR(Store(layer_index, model::kNearType, near_, &near_k, &near_v));
    layer->near_keys.insert(layer->near_keys.end(), near_k.begin(), near_k.end());
    layer->near_values.insert(layer->near_values.end(), near_v.begin(), near_v.end());
  }
  RETURN_IF_ERROR(Store(layer_index, TypeOf(layer_index), cache_, &k, &v));
  layer->keys.insert(layer->keys.end(), k.begin(), k.end());
  layer->values.insert(layer->values.end(), v.begin(), v.end());
  const size_t window = static_cast<size_t>(config_.AttentionOf(layer_index).window);
  const size_t first = window == 0 || position_ < window ? 0 : position_ + 1 - window;
  const Vector sinks = config_.HasSinks(layer_index) ? RowOf(layer->sinks, 0) : Vector();
  const double scale = config_.AttentionScale();
  Vector out(heads * vd, 0.0);
  for (size_t j = 0; j < heads; ++j) {
    const size_t kv = j / (heads / kv_heads);
    Vector p;
    for (size_t t = first; t <= position_; ++t) {
      const double* key = StoredAt(layer_index, t, false) + kv * wide;
      p.push_back(std::inner_product(key, key + wide, &q[j * wide], 0.0) * scale);
    }
    if (!sinks.empty()) p.push_back(sinks[j]);
    Softmax(&p);
    for (size_t t = first; t <= position_; ++t) {
      const double* value = StoredAt(layer_index, t, true) + kv * value_dim();
      for (size_t d = 0; d < vd; ++d) out[j * vd + d] += p[t - first] * value[d];
    }
  }
  for (size_t i = 0; i < gate.size(); ++i) out[i] *= 1 / (1 + std::exp(-gate[i]));
  Vector y = Multiply(layer->o, out);
  if (config_.attention.o_bias) AddTo(RowOf(layer->o_bias, 0), &y);
  AddBlock(layer->attention_norm, std::move(y), x);
  return OkStatus();
}

}  // namespace mainarch::reference
