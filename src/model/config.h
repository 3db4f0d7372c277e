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
#include "base/status.h"

namespace mainarch::model {

struct RopeConfig {
  double theta = 1e4;
  int32_t rotary_dim = 0;  // R: the first R dims of a head are rotated, NeoX pairing (i, i + R/2)
  bool yarn = false;
  bool llama3 = false;
  // Both.
  double factor = 1;
  int64_t original_max_position = 0;
  // Llama 3 only: what turns less than `low` times over the original range is slowed by the factor,
  // what turns more than `high` times is left, and between them it is a blend.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // YaRN only (models.md §1.5).
  double attention_factor = 1;  // m: multiplies cos and sin; resolved, never 0
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // floor/ceil the correction range
};

// What attention has beside products. An architecture says so; the defaults are Qwen3's.
struct AttentionConfig {
  bool qk_norm = true;       // of each head of Q and K, before it turns
  bool qkv_bias = false;     // the gate's too
  bool o_bias = false;
  bool output_gate = false;  // q_proj has a head's queries, then its gate: out *= sigmoid(gate)
  bool sinks = false;        // self_attn.sinks [heads]: one more score, of a token whose V is zero

  bool operator==(const AttentionConfig&) const = default;
};

inline constexpr int32_t kNoRope = -1;

// What one layer's attention has of its own.
struct LayerAttention {
  int32_t window = 0;  // tokens that a query sees, its own among them; 0: all
  int32_t rope = 0;    // 0: ModelConfig::rope; i: more_ropes[i - 1]; kNoRope: none turns

  bool operator==(const LayerAttention&) const = default;
};

struct ModelConfig {
  std::string model_type;  // of one of arch/*
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t intermediate = 0;  // dense FFN width
  int32_t vocab = 0;         // rows of the embedding, padding rows included
  float rms_eps = 1e-6f;
  int64_t max_position = 0;  // under YaRN at least factor * original_max_position
  bool tied_embeddings = false;
  RopeConfig rope;
  std::vector<RopeConfig> more_ropes;  // of layers that say so
  AttentionConfig attention;
  std::vector<LayerAttention> layer_attention;  // [layers]; empty: the default in all

  int32_t experts = 0;  // 0: dense
  int32_t experts_per_token = 0;
  int32_t moe_intermediate = 0;
  bool norm_topk_prob = false;
  std::vector<bool> sparse_layer;  // [layers]: true where the FFN is a mixture of experts

  std::vector<uint32_t> eos_ids;  // of config.json and generation_config.json; sorted, unique

  // generation_config.json; what the file lacks is 0 (off). do_sample false makes temperature 0,
  // do_sample true without a temperature makes it 1.
  float temperature = 0;
  float top_p = 0;
  uint32_t top_k = 0;
  float min_p = 0;
  float repetition_penalty = 1;

  LayerAttention AttentionOf(size_t layer) const {
    return layer_attention.empty() ? LayerAttention() : layer_attention[layer];
  }
};

// `generation_config_json` may be empty. Unknown architectures and features are refused by name.
StatusOr<ModelConfig> ParseConfig(absl::string_view config_json,
                                  absl::string_view generation_config_json,
                                  absl::string_view directory);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_CONFIG_H_
