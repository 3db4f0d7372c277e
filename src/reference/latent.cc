// SPDX-License-Identifier: MIT
//
// Latent attention as its definition has it (DeepSeek-AI, "DeepSeek-V2", 2024, equations 9 to 19): keys and values of
// every head are made of each token's latent, and attended to. Nothing is absorbed.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "reference/decoder.h"
#include "reference/kv_rounding.h"
#include "reference/math.h"

namespace mainarch::reference {

Status Decoder::FindLatent(const std::string& p, Layer* layer) const {
  const model::LatentConfig& l = config_.latent;
  const int64_t h = config_.hidden, heads = config_.heads, q_rows = heads * config_.head_dim;
  if (l.q_latent > 0) {
    RETURN_IF_ERROR(Linear(p + "q_a_proj", l.q_latent, h, &layer->q_a));
    RETURN_IF_ERROR(VectorOf(p + "q_a_layernorm.weight", l.q_latent, &layer->q_a_norm));
    RETURN_IF_ERROR(Linear(p + "q_b_proj", q_rows, l.q_latent, &layer->q_b));
  } else {
    RETURN_IF_ERROR(Linear(p + "q_proj", q_rows, h, &layer->q));
  }
  RETURN_IF_ERROR(Linear(p + "kv_a_proj_with_mqa", l.latent + l.turning, h, &layer->kv_a));
  RETURN_IF_ERROR(VectorOf(p + "kv_a_layernorm.weight", l.latent, &layer->kv_a_norm));
  if (checkpoint_->Find(p + "heads.0.k_b_proj.weight") != nullptr) {
    layer->k_b.resize(static_cast<size_t>(heads));
    layer->v_b.resize(static_cast<size_t>(heads));
    for (size_t h = 0; h < layer->k_b.size(); ++h) {
      const std::string head = absl::StrCat(p, "heads.", h, ".");
      RETURN_IF_ERROR(Linear(head + "k_b_proj", l.latent, l.still, &layer->k_b[h]));
      RETURN_IF_ERROR(Linear(head + "v_b_proj", l.value, l.latent, &layer->v_b[h]));
    }
  } else {
    RETURN_IF_ERROR(Linear(p + "kv_b_proj", heads * (l.still + l.value), l.latent, &layer->kv_b));
  }
  return Linear(p + "o_proj", h, heads * l.value, &layer->o);
}

// What the latent of a token stands for: the part of head j's key that does not turn, and its value.
std::pair<Vector, Vector> Decoder::Unfold(const Layer& layer, size_t j, const Vector& key_latent,
                                          const Vector& value_latent) const {
  const model::LatentConfig& l = config_.latent;
  if (layer.k_b.empty()) {
    const int64_t row = static_cast<int64_t>(j) * (l.still + l.value);
    return {Multiply(layer.kv_b, row, l.still, 0, key_latent),
            Multiply(layer.kv_b, row + l.still, l.value, 0, value_latent)};
  }
  Vector key(static_cast<size_t>(l.still), 0.0);
  for (int64_t c = 0; c < l.latent; ++c) {
    const Vector row = RowOf(layer.k_b[j], c);
    for (size_t i = 0; i < key.size(); ++i) key[i] += row[i] * key_latent[static_cast<size_t>(c)];
  }
  return {key, Multiply(layer.v_b[j], value_latent)};
}

// The part of a head that turns, in place: neighbours apart first, where they are pairs.
void Decoder::TurnLatent(double* part) const {
  const size_t turning = static_cast<size_t>(config_.latent.turning);
  if (config_.latent.pairs) {
    const Vector old(part, part + turning);
    for (size_t i = 0; i < turning / 2; ++i) {
      part[i] = old[2 * i];
      part[turning / 2 + i] = old[2 * i + 1];
    }
  }
  Rotate(0, part);
}

Status Decoder::LatentAttention(size_t layer_index, Vector* x) {
  Layer* layer = &layers_[layer_index];
  const model::LatentConfig& l = config_.latent;
  const double eps = 1e-6;  // the class' default, which the configuration does not change
  const size_t heads = static_cast<size_t>(config_.heads), hd = static_cast<size_t>(config_.head_dim);
  const size_t still = static_cast<size_t>(l.still), turning = static_cast<size_t>(l.turning);
  const size_t value_dim = static_cast<size_t>(l.value);
  Vector h = *x;
  Norm(layer->input_norm, &h);
  Vector q;
  if (l.q_latent > 0) {
    Vector c = Multiply(layer->q_a, h);
    RmsNorm(RowOf(layer->q_a_norm, 0), 0, eps, c.data());
    q = Multiply(layer->q_b, c);
  } else {
    q = Multiply(layer->q, h);
  }
  for (size_t j = 0; j < heads; ++j) TurnLatent(&q[j * hd + still]);

  // What the cache holds: [what turns | latent] and the latent again.
  const Vector kv = Multiply(layer->kv_a, h);
  Vector latent(kv.begin(), kv.begin() + l.latent), k(kv.begin() + l.latent, kv.end());
  RmsNorm(RowOf(layer->kv_a_norm, 0), 0, eps, latent.data());
  TurnLatent(k.data());
  k.insert(k.end(), latent.begin(), latent.end());
  Vector v = latent;
  const bool turns = quant::InfoOf(rounding_).turns;
  if (turns) TurnHead(absl::MakeSpan(k));
  RETURN_IF_ERROR(Store(layer_index, rounding_, cache_, &k, &v));
  layer->keys.insert(layer->keys.end(), k.begin(), k.end());
  layer->values.insert(layer->values.end(), v.begin(), v.end());
  if (turns) TurnHead(absl::MakeSpan(k));  // its own inverse
  const Vector key_latent(k.begin() + l.turning, k.end());
  for (size_t j = 0; j < heads; ++j) {
    const auto [own, value] = Unfold(*layer, j, key_latent, v);
    layer->head_keys.insert(layer->head_keys.end(), own.begin(), own.end());
    layer->head_keys.insert(layer->head_keys.end(), k.begin(), k.begin() + l.turning);
    layer->head_values.insert(layer->head_values.end(), value.begin(), value.end());
  }

  const double scale = config_.AttentionScale();
  Vector out(heads * value_dim, 0.0);
  for (size_t j = 0; j < heads; ++j) {
    Vector p;
    for (size_t t = 0; t <= position_; ++t) {
      const double* key = &layer->head_keys[(t * heads + j) * hd];
      p.push_back(std::inner_product(key, key + still + turning, &q[j * hd], 0.0) * scale);
    }
    Softmax(&p);
    for (size_t t = 0; t <= position_; ++t) {
      const double* value = &layer->head_values[(t * heads + j) * value_dim];
      for (size_t d = 0; d < value_dim; ++d) out[j * value_dim + d] += p[t] * value[d];
    }
  }
  AddBlock(layer->attention_norm, Multiply(layer->o, out), x);
  return OkStatus();
}

}  // namespace mainarch::reference
