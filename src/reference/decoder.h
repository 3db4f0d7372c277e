// SPDX-License-Identifier: MIT
//
// The fp64 reference: a model straight from the checkpoint and the config, with whatever the config
// says that it has, one token at a time, in the plainest loops (ffn.cc: the feed-forwards;
// weights.cc: where the tensors are; math.h: what the loops are made of). It knows nothing of
// Programs, backends or layouts, on purpose: it is what catches a wrong one. Slow, and meant to be.
//
// One thread at a time. Memory: K and V of every position in fp64, beside one row of each weight.
#ifndef MAINARCH_REFERENCE_DECODER_H_
#define MAINARCH_REFERENCE_DECODER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "file/checkpoint.h"
#include "kernels/quant/kv_type.h"
#include "model/config.h"
#include "model/experts.h"
#include "model/kv_tiers.h"
#include "quant/matrix.h"

namespace mainarch::reference {

// What the cache under test holds of one position in one layer: K and V,
// [kv_heads][copies][head_dim], with more than one copy where several ranks hold the same head.
// Both empty: it keeps them no longer.
using CacheReader = std::function<Status(size_t layer, size_t position, std::vector<float>* k,
                                         std::vector<float>* v)>;

// What a cache that nobody has built would make of a head of K, or of V, of a position: in place.
using HeadRounder =
    std::function<void(size_t layer, size_t position, bool is_value, absl::Span<double> head)>;

class Decoder {
 public:
  // `rounding`: what K and V are rounded to before they are used, as the cache under test stores
  // them; kF32: nothing.
  static StatusOr<std::unique_ptr<Decoder>> Create(
      std::shared_ptr<const file::Checkpoint> checkpoint, const model::ModelConfig& config,
      quant::KvType rounding);

  // From now on K and V of each token run are compared with those that the cache under test stored:
  // an element may be off by what rounding may do, and by a thousandth of its head's largest. An
  // error names one that is further off. Then the stored ones are used, so that an element that
  // fell to the other side of a rounding does not pass for an error of the arithmetic.
  void Follow(CacheReader cache) { cache_ = std::move(cache); }
  // The cache under test holds some tokens or layers in a type of their own (model/kv_tiers.h); before the first token.
  // `near`: what its cache of the first and last tokens holds, as for Follow; none: they are rounded here.
  void UseTiers(model::KvTiers tiers, CacheReader near) {
    tiers_ = tiers;
    near_ = std::move(near);
  }

  // From now on this instead of `rounding`, for experiments with types.
  void RoundWith(HeadRounder rounder) { rounder_ = std::move(rounder); }
  // What is held of a position, in every layer with attention of its own heads, once more.
  void RoundAgain(size_t position, const HeadRounder& rounder);

  // Runs tokens at the next positions. After an error, Truncate.
  Status Extend(absl::Span<const uint32_t> tokens);
  // Forgets every position from `position` on; logits() then needs another Extend, which, where there
  // are states, runs all tokens before again.
  void Truncate(size_t position);
  size_t position() const { return tokens_.size(); }
  size_t head_dim() const { return static_cast<size_t>(config_.head_dim); }

  // Of the last token run: [vocab].
  absl::Span<const double> logits() const { return logits_; }
  // K and V of a position in a layer, [kv_heads][head, as caches store it], as attention reads them.
  std::pair<absl::Span<const double>, absl::Span<const double>> stored(size_t layer,
                                                                       size_t position) const;
  // Residual stream after layer i for the last token run: [hidden].
  absl::Span<const double> layer_output(size_t i) const { return layer_outputs_[i]; }

 private:
  using Vector = std::vector<double>;
  // Of a feed-forward: gate and up, or both in one matrix, and down, with biases or none.
  struct Mlp {
    quant::Matrix gate, up, gate_up, down;
    quant::Matrix gate_bias, up_bias, gate_up_bias, down_bias;
  };
  // Of a gated delta net, as far as the checkpoint has them.
  struct DeltaWeights {
    quant::Matrix qkvz, ba, qkv, z, b, a, conv, decay, dt_bias, norm, out;
  };
  struct DeltaRow {
    Vector qkv, z, b, a;
  };
  struct Layer {
    // As far as the config has them: norms before and behind attention and feed-forward.
    quant::Matrix input_norm, attention_norm, ffn_norm, output_norm, q_norm, k_norm;
    quant::Matrix q, k, v, qkv, o;
    quant::Matrix q_bias, k_bias, v_bias, qkv_bias, o_bias, sinks;
    bool sparse = false;
    Mlp dense, shared;
    quant::Matrix router, router_bias, correction, shared_gate;
    model::ExpertMatrices experts;
    model::ExpertBiases expert_biases;
    std::vector<double> keys, values;    // [position, stored heads, key_dim() or value_dim()]
    std::vector<double> near_keys, near_values;  // the same, as the first and last tokens are held
    // Of latent attention (latent.cc): its weights, and the keys and values that latents stand for.
    quant::Matrix q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;
    std::vector<quant::Matrix> k_b, v_b;  // of each head, where they are apart: [latent, still], [value, latent]
    std::vector<double> head_keys, head_values;  // [position, heads, ...]
    bool is_delta = false;
    DeltaWeights delta;
    std::vector<Vector> delta_rows;  // the last ones, of q, k and v before the convolution
    Vector delta_state;              // [value_heads, value_dim, key_dim]
  };

  Decoder(std::shared_ptr<const file::Checkpoint> checkpoint, const model::ModelConfig& config,
          quant::KvType rounding);

  Status FindWeights();
  Status FindAttention(const std::string& prefix, size_t index, Layer* layer) const;
  Status FindMlp(const std::string& prefix, int64_t width, Mlp* mlp) const;
  Status FindFfn(const std::string& prefix, Layer* layer) const;
  Status Linear(const std::string& name, int64_t rows, int64_t cols, quant::Matrix* out) const;
  Status VectorOf(const std::string& name, int64_t size, quant::Matrix* out) const;
  Status Token(uint32_t token);
  Status Attention(size_t layer_index, Vector* x);
  // What later tokens see of K and V: as the cache holds them, or rounded as it would.
  Status Store(size_t layer, quant::KvType type, const CacheReader& cache, Vector* k, Vector* v) const;
  // What a layer's cache is of, and whether it has another of the first and last tokens.
  quant::KvType TypeOf(size_t layer) const;
  bool HasNear(size_t layer) const;
  // The key, or value, of a position that this one's query is to see.
  const double* StoredAt(size_t layer, size_t position, bool is_value) const;
  Status TakeStored(quant::KvForm form, absl::Span<const float> stored, const std::string& what,
                    size_t dim, Vector* x) const;
  // Of what the cache holds: of latent attention one head.
  size_t stored_heads(size_t layer) const {
    return config_.latent.latent > 0 ? 1 : static_cast<size_t>(config_.KvHeadsOf(layer));
  }
  size_t key_dim() const {
    const model::LatentConfig& l = config_.latent;
    return static_cast<size_t>(l.latent > 0 ? l.turning + l.latent : config_.StoredHeads().key);
  }
  size_t value_dim() const {
    return static_cast<size_t>(config_.latent.latent > 0 ? config_.latent.latent : config_.StoredHeads().value);
  }
  // latent.cc
  Status FindLatent(const std::string& prefix, Layer* layer) const;
  Status LatentAttention(size_t layer_index, Vector* x);
  void TurnLatent(double* part) const;
  std::pair<Vector, Vector> Unfold(const Layer& layer, size_t head, const Vector& key_latent,
                                   const Vector& value_latent) const;
  // delta.cc
  Status FindDelta(const std::string& prefix, Layer* layer) const;
  DeltaRow DeltaProducts(const Layer& layer, const Vector& h) const;
  Vector Convolve(const Layer& layer, const Vector& row) const;
  void Delta(size_t layer_index, Vector* x);
  void Ffn(const Layer& layer, Vector* x) const;
  Vector RunMlp(const Mlp& mlp, const Vector& h) const;
  Vector Activate(const Vector& gate, const Vector& up) const;
  Vector MixExperts(const Layer& layer, const Vector& h) const;
  Vector RunExpert(const Layer& layer, size_t expert, const Vector& h) const;
  // (expert, weight) of those that a token takes.
  std::vector<std::pair<size_t, double>> Route(const Layer& layer, const Vector& h) const;
  // The norm of that weight, in place.
  void Norm(const quant::Matrix& weight, Vector* x) const;
  // x += what a block made of it, normed if there is a norm behind it.
  void AddBlock(const quant::Matrix& norm, Vector y, Vector* x) const;
  // K, V and the queries of a token, the last with its gates: biases, norms, rotation.
  struct Heads {
    Vector q, k, v, gate;
  };
  Heads MakeHeads(size_t layer, const Vector& x) const;
  void Products(size_t layer, const Vector& h, Heads* out) const;
  void Rotate(int32_t rope, double* head) const;

  const std::shared_ptr<const file::Checkpoint> checkpoint_;
  const model::ModelConfig config_;
  const quant::KvType rounding_;
  model::KvTiers tiers_;
  CacheReader near_;
  CacheReader cache_;             // none: K and V are rounded here
  HeadRounder rounder_;           // none: as `rounding_` says
  std::vector<Vector> inv_freq_;  // [ropes][rotary_dim / 2]
  quant::Matrix embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
  size_t position_ = 0;            // tokens that keys, values and states hold
  std::vector<uint32_t> tokens_;  // of these, and, behind a Truncate, those to be run again
  Vector logits_;
  std::vector<Vector> layer_outputs_;
};

}  // namespace mainarch::reference

#endif  // MAINARCH_REFERENCE_DECODER_H_
