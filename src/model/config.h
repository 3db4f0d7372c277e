// SPDX-License-Identifier: MIT
//
// What config.json (and generation_config.json, tokenizer_config.json) say of a model, every field
// ranged. Rules: reference models.md §1.1. Weight formats are not here: they come from the tensors.
#ifndef MAINARCH_MODEL_CONFIG_H_
#define MAINARCH_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backend/activation.h"
#include "backend/head_dims.h"
#include "base/status.h"

namespace mainarch::model {

enum class RopeKind : uint8_t { kPlain, kLinear, kLlama3, kYarn, kLongRope };

struct RopeConfig {
  double theta = 1e4;
  int32_t rotary_dim = 0;  // R: the first R dims of a head are rotated, NeoX pairing (i, i + R/2)
  RopeKind kind = RopeKind::kPlain;
  double factor = 1;                  // of all but plain and LongRoPE
  int64_t original_max_position = 0;  // of Llama 3, YaRN and LongRoPE
  // Llama 3 only: what turns less than `low` times over the original range is slowed by the factor,
  // what turns more than `high` times is left, and between them it is a blend.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // YaRN and LongRoPE. m: multiplies cos and sin; resolved, never 0
  double attention_factor = 1;
  // YaRN only (models.md §1.5).
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // floor/ceil the correction range
  // LongRoPE only: each frequency is divided by its own. [rotary_dim / 2]
  std::vector<double> divisors;

  bool operator==(const RopeConfig&) const = default;
};

// What attention has beside products. An architecture says so; the defaults are Qwen3's.
struct AttentionConfig {
  bool qk_norm = true;       // of each head of Q and K, before it turns
  bool wide_qk_norm = false;  // of Q as a whole, and of K, all heads together
  bool qkv_bias = false;     // the gate's too
  bool o_bias = false;
  bool output_gate = false;  // q_proj has a head's queries, then its gate: out *= sigmoid(gate)
  bool sinks = false;        // self_attn.sinks [heads]: one more score, of a token whose V is zero; of layers that say so
  bool fused_qkv = false;    // one matrix qkv_proj: all of Q's rows, then K's, then V's
  double scale = 0;          // of the scores; 0: 1 / sqrt(head_dim)
  double value_scale = 1;    // of V

  bool operator==(const AttentionConfig&) const = default;
};

inline constexpr int32_t kNoRope = -1;

// What one layer's attention has of its own.
struct LayerAttention {
  int32_t window = 0;  // tokens that a query sees, its own among them; 0: all
  int32_t rope = 0;    // 0: ModelConfig::rope; i: more_ropes[i - 1]; kNoRope: none turns
  int32_t kv_heads = 0;  // 0: ModelConfig::kv_heads
  bool sinks = true;     // where AttentionConfig has some

  bool operator==(const LayerAttention&) const = default;
};

// Layers of a gated delta net in place of attention (backend::GatedDeltaOp says what they compute).
struct DeltaConfig {
  int32_t key_heads = 0;  // 0: there are no such layers
  int32_t value_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t taps = 0;  // of the convolution
  // Rows of the products: all heads' q, then all k, v and z (false), or, for each key head, its q and k
  // and its value heads' v and z, as Qwen3-Next has them.
  bool by_key_head = false;

  bool operator==(const DeltaConfig&) const = default;
};

// Latent attention (DeepSeek's) in place of the usual in every layer: keys and values of all heads are made of one
// latent a token, and of one key part that turns. head_dim is then still + turning, kv_heads the heads.
struct LatentConfig {
  int32_t latent = 0;   // kv_lora_rank; 0: there is no such attention
  int32_t q_latent = 0;  // q_lora_rank; 0: queries are made of x itself
  int32_t still = 0;     // of a head of Q and of K: what does not turn ...
  int32_t turning = 0;   // ... and what does
  int32_t value = 0;     // of a head of V
  bool pairs = true;     // neighbours turn together

  bool operator==(const LatentConfig&) const = default;
};
// Of the norms of latents, whatever rms_norm_eps says.
inline constexpr float kLatentEps = 1e-6f;

// Where a layer's RMSNorms stand: before attention and feed-forward, behind them, or both.
struct NormConfig {
  bool before = true;
  bool after = false;
  bool plus_one = false;  // what is stored is the weight less one, as in Gemma

  bool operator==(const NormConfig&) const = default;
};

// How a checkpoint calls its experts and their router, beside the fused forms that experts.h knows.
enum class ExpertNames : uint8_t {
  kMlp,      // mlp.experts.N.gate_proj, mlp.gate
  kMixtral,  // block_sparse_moe.experts.N.w1, block_sparse_moe.gate
  kGptOss,   // mlp.experts.gate_up_proj, mlp.router
};

// How a token's experts are chosen and weighted. The default is the softmax over all.
struct RouterConfig {
  bool sigmoid = false;       // each score by itself, instead of the softmax
  bool bias = false;          // added to the logits
  bool correction = false;    // e_score_correction_bias: added to scores for the choice alone
  int32_t groups = 1;         // of equally many experts, by the sum of their two best
  int32_t chosen_groups = 1;  // from which experts are taken
  double scale = 1;           // of the weights, at the end

  bool operator==(const RouterConfig&) const = default;
};

struct ModelConfig {
  std::string model_type;  // of one of arch/*
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;   // of Q and K
  int32_t value_dim = 0;  // of V; 0: as theirs
  backend::HeadDims stored;  // not of the file: what the backend says (Backend::StoredHeads); zeros: as CPUs
  int32_t intermediate = 0;  // dense FFN width
  int32_t vocab = 0;         // rows of the embedding, padding rows included
  float rms_eps = 1e-6f;
  int64_t max_position = 0;  // under YaRN at least factor * original_max_position
  bool tied_embeddings = false;
  RopeConfig rope;
  std::vector<RopeConfig> more_ropes;  // of layers that say so
  AttentionConfig attention;
  std::vector<LayerAttention> layer_attention;  // [layers]; empty: the default in all
  DeltaConfig delta;
  std::vector<bool> delta_layer;  // [layers]; empty: attention in all
  LatentConfig latent;
  NormConfig norms;
  backend::Activation activation = backend::Activation::kSilu;
  bool mlp_bias = false;       // of gate, up and down; of experts, too
  bool fused_gate_up = false;  // one matrix gate_up_proj: all rows of the gate, then those of up
  // Of embeddings, rounded to their type; of what a block adds to x; of the logits.
  double embedding_scale = 1;
  double residual_scale = 1;
  double logits_scale = 1;

  int32_t experts = 0;  // 0: dense
  int32_t experts_per_token = 0;
  int32_t moe_intermediate = 0;
  bool norm_topk_prob = false;
  RouterConfig router;
  ExpertNames expert_names = ExpertNames::kMlp;
  int32_t shared_intermediate = 0;  // an expert for all tokens; 0: none
  bool shared_gate = false;         // times the sigmoid of one more product
  std::vector<bool> sparse_layer;  // [layers]: true where the FFN is a mixture of experts

  std::vector<uint32_t> eos_ids;  // of config.json and generation_config.json; sorted, unique

  // generation_config.json; what the file lacks is 0 (off). do_sample false makes temperature 0,
  // do_sample true without a temperature makes it 1.
  float temperature = 0;
  float top_p = 0;
  uint32_t top_k = 0;
  float min_p = 0;
  float repetition_penalty = 1;

  double AttentionScale() const;
  // A head of V, and so one that attention leaves.
  int32_t ValueDim() const { return latent.latent > 0 ? latent.value : value_dim > 0 ? value_dim : head_dim; }
  // Heads as they are where attention has them: of latents, what it leaves.
  backend::HeadDims Heads() const { return {latent.latent > 0 ? latent.value : head_dim, ValueDim()}; }
  // The same as caches and attention have them, with zeros behind.
  backend::HeadDims StoredHeads() const { return stored.key > 0 ? stored : backend::HeadsBySixteen(Heads()); }
  int32_t KvHeadsOf(size_t layer) const {
    const int32_t own = AttentionOf(layer).kv_heads;
    return own > 0 ? own : kv_heads;
  }
  bool HasSinks(size_t layer) const { return attention.sinks && AttentionOf(layer).sinks; }
  LayerAttention AttentionOf(size_t layer) const {
    return layer_attention.empty() ? LayerAttention() : layer_attention[layer];
  }
  bool IsDelta(size_t layer) const { return !delta_layer.empty() && delta_layer[layer]; }
};

// `generation_config_json` may be empty. Unknown architectures and features are refused by name.
StatusOr<ModelConfig> ParseConfig(absl::string_view config_json,
                                  absl::string_view generation_config_json,
                                  absl::string_view directory);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_CONFIG_H_
