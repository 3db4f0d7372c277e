// SPDX-License-Identifier: MIT
#include "model/config_json.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "file/json_text.h"
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

// Text that reads back as the same number.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }
std::string Exact(float value) { return absl::StrFormat("%.9g", static_cast<double>(value)); }

// `whole`: that all of a head turns is said, too, where it is not the default.
std::string Rope(const RopeConfig& rope, int32_t head_dim, bool whole = false) {
  constexpr absl::string_view kNames[] = {"default", "linear", "llama3", "yarn", "longrope"};
  std::string text = absl::StrCat("{\"rope_type\": \"", kNames[static_cast<size_t>(rope.kind)],
                                  "\", \"rope_theta\": ", Exact(rope.theta));
  if (whole && rope.rotary_dim == head_dim) {
    text += ", \"partial_rotary_factor\": 1.0";
  } else if (rope.rotary_dim != head_dim) {
    double share = static_cast<double>(rope.rotary_dim) / head_dim;
    // Readers truncate: where the quotient falls short, a hair more.
    if (static_cast<int32_t>(head_dim * share) != rope.rotary_dim) {
      share = (rope.rotary_dim + 0.25) / head_dim;
    }
    absl::StrAppend(&text, ", \"partial_rotary_factor\": ", Exact(share));
  }
  if (rope.kind == RopeKind::kLongRope) {
    const std::string list = absl::StrCat(
        "[",
        absl::StrJoin(rope.divisors, ", ",
                      [](std::string* out, double x) { absl::StrAppend(out, Exact(x)); }),
        "]");
    absl::StrAppend(&text, ", \"short_factor\": ", list, ", \"long_factor\": ", list,
                    ", \"attention_factor\": ", Exact(rope.attention_factor));
  } else if (rope.kind != RopeKind::kPlain) {
    absl::StrAppend(&text, ", \"factor\": ", Exact(rope.factor));
  }
  if (rope.original_max_position > 0) {
    absl::StrAppend(&text, ", \"original_max_position_embeddings\": ", rope.original_max_position);
  }
  if (rope.kind == RopeKind::kLlama3) {
    absl::StrAppend(&text, ", \"low_freq_factor\": ", Exact(rope.low_freq_factor),
                    ", \"high_freq_factor\": ", Exact(rope.high_freq_factor));
  }
  if (rope.kind == RopeKind::kYarn) {
    absl::StrAppend(&text, ", \"attention_factor\": ", Exact(rope.attention_factor),
                    ", \"beta_fast\": ", Exact(rope.beta_fast),
                    ", \"beta_slow\": ", Exact(rope.beta_slow));
    absl::StrAppend(&text, ", \"truncate\": ", rope.truncate ? "true" : "false");
  }
  return text + "}";
}

// The rest of Llama 3's, YaRN's and LongRoPE's keys is in Rope.
std::string Ropes(const ModelConfig& config, bool by_window) {
  if (config.latent.latent > 0) {
    std::string rope = Rope(config.rope, config.rope.rotary_dim);
    const double by = std::sqrt(config.AttentionScale() * std::sqrt(static_cast<double>(config.head_dim)));
    if (config.rope.factor > 1 && by > 1) {  // what the scale of the scores has of YaRN's
      rope.insert(rope.size() - 1,
                  absl::StrCat(", \"mscale_all_dim\": ", Exact((by - 1) / (0.1 * std::log(config.rope.factor)))));
    }
    return rope;
  }
  const bool whole = config.model_type == "glm4_moe" || config.model_type == "mimo_v2_flash" || config.delta.key_heads > 0;
  const std::string full = Rope(config.rope, config.head_dim, whole);
  if (!by_window) return full;
  return absl::StrCat("{\"full_attention\": ", full, ", \"sliding_attention\": ",
                      config.more_ropes.empty() ? full : Rope(config.more_ropes[0], config.head_dim, whole), "}");
}

// Windows, and layers that do not turn.
void AddLayers(const ModelConfig& config, file::JsonObjectText* json) {
  int32_t window = 0;
  std::vector<std::string> types;
  std::vector<int> turns;
  bool all_turn = true;
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    const LayerAttention own = config.AttentionOf(layer);
    window = std::max(window, own.window);
    types.push_back(own.window > 0 ? "\"sliding_attention\"" : "\"full_attention\"");
    turns.push_back(own.rope == kNoRope ? 0 : 1);
    all_turn = all_turn && own.rope != kNoRope;
  }
  json->Flag("use_sliding_window", window > 0);
  json->Raw("sliding_window", window > 0 ? absl::StrCat(window) : "null");
  if (window > 0) json->Raw("layer_types", absl::StrCat("[", absl::StrJoin(types, ", "), "]"));
  if (!all_turn || config.model_type == "smollm3") {
    json->Raw("no_rope_layers", absl::StrCat("[", absl::StrJoin(turns, ", "), "]"));
  }
}

void AddDelta(const ModelConfig& config, file::JsonObjectText* json) {
  const DeltaConfig& delta = config.delta;
  if (delta.key_heads == 0) return;
  json->Integer("linear_num_key_heads", delta.key_heads);
  json->Integer("linear_num_value_heads", delta.value_heads);
  json->Integer("linear_key_head_dim", delta.key_dim);
  json->Integer("linear_value_head_dim", delta.value_dim);
  json->Integer("linear_conv_kernel_dim", delta.taps);
  std::vector<const char*> types;
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    types.push_back(config.IsDelta(layer) ? "\"linear_attention\"" : "\"full_attention\"");
  }
  json->Raw("layer_types", absl::StrCat("[", absl::StrJoin(types, ", "), "]"));
}

void AddLatent(const ModelConfig& config, file::JsonObjectText* json) {
  const LatentConfig& l = config.latent;
  if (l.latent == 0) return;
  json->Integer("kv_lora_rank", l.latent);
  json->Raw("q_lora_rank", l.q_latent > 0 ? absl::StrCat(l.q_latent) : "null");
  json->Integer("qk_nope_head_dim", l.still);
  json->Integer("qk_rope_head_dim", l.turning);
  json->Integer("v_head_dim", l.value);
  json->Flag("rope_interleave", l.pairs);
}

void AddDenseLayers(const ModelConfig& config, file::JsonObjectText* json) {
  std::vector<size_t> dense;
  for (size_t layer = 0; layer < config.sparse_layer.size(); ++layer) {
    if (!config.sparse_layer[layer]) dense.push_back(layer);
  }
  json->Integer("decoder_sparse_step", 1);
  json->Raw("mlp_only_layers", absl::StrCat("[", absl::StrJoin(dense, ", "), "]"));
}

void AddExperts(const ModelConfig& config, ExpertKeys keys, file::JsonObjectText* json) {
  if (keys == ExpertKeys::kNone) return;
  json->Integer(keys == ExpertKeys::kNumber  ? "num_experts"
               : keys == ExpertKeys::kLocal ? "num_local_experts"
                                            : "n_routed_experts",
               config.experts);
  json->Integer("num_experts_per_tok", config.experts_per_token);
  json->Flag("norm_topk_prob", config.norm_topk_prob);
  if (keys == ExpertKeys::kLocal) {
    json->Integer("intermediate_size", config.moe_intermediate);
    return;
  }
  json->Integer("moe_intermediate_size", config.moe_intermediate);
  if (keys == ExpertKeys::kNumber) {
    AddDenseLayers(config, json);
    if (config.shared_intermediate > 0) {
      json->Integer("shared_expert_intermediate_size", config.shared_intermediate);
    }
    return;
  }
  const auto first = std::find(config.sparse_layer.begin(), config.sparse_layer.end(), true);
  json->Integer("first_k_dense_replace", first - config.sparse_layer.begin());
  json->Integer("n_shared_experts",
               config.shared_intermediate / std::max(1, config.moe_intermediate));
  json->Integer("n_group", config.router.groups);
  json->Integer("topk_group", config.router.chosen_groups);
  json->Raw("routed_scaling_factor", Exact(config.router.scale));
}

void AddMimo(const ModelConfig& config, file::JsonObjectText* json) {
  json->Integer("v_head_dim", config.ValueDim());
  json->Raw("attention_value_scale", Exact(config.attention.value_scale));
  bool sinks = false, full_sinks = false;
  int32_t kv_heads = 0;
  std::vector<const char*> sparse;
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    const bool slides = config.AttentionOf(layer).window > 0;
    if (slides) kv_heads = config.KvHeadsOf(layer);
    (slides ? sinks : full_sinks) |= config.HasSinks(layer);
    sparse.push_back(config.sparse_layer[layer] ? "\"sparse\"" : "\"dense\"");
  }
  if (kv_heads > 0) json->Integer("swa_num_key_value_heads", kv_heads);
  json->Flag("add_swa_attention_sink_bias", sinks);
  json->Flag("add_full_attention_sink_bias", full_sinks);
  json->Raw("mlp_layer_types", absl::StrCat("[", absl::StrJoin(sparse, ", "), "]"));
}

// Keys of single architectures; others do not look at them.
void AddFactors(const ModelConfig& config, file::JsonObjectText* json) {
  const double scale = config.AttentionScale();
  // What two divisions may add does not lead beyond the reader's limit.
  const auto inverse = [](double x) { return Exact(std::clamp(1 / x, 1e-6, 1e6)); };
  if (config.model_type == "gemma3_text") {
    json->Raw("query_pre_attn_scalar", inverse(scale * scale));
  }
  if (config.model_type == "mimo_v2_flash") AddMimo(config, json);
  if (config.model_type == "granite") {
    json->Raw("embedding_multiplier", Exact(config.embedding_scale));
    json->Raw("residual_multiplier", Exact(config.residual_scale));
    json->Raw("attention_multiplier", Exact(scale));
    json->Raw("logits_scaling", inverse(config.logits_scale));
  }
}

}  // namespace

std::string ConfigJson(const ModelConfig& config, absl::string_view dtype,
                       absl::string_view quantization) {
  const Arch* arch = FindArch(config.model_type);
  file::JsonObjectText json;
  if (arch != nullptr) json.Raw("architectures", absl::StrCat("[\"", arch->class_name, "\"]"));
  json.Text("model_type", config.model_type);
  json.Integer("vocab_size", config.vocab);
  json.Integer("hidden_size", config.hidden);
  json.Integer("num_hidden_layers", config.layers);
  json.Integer("num_attention_heads", config.heads);
  json.Integer("num_key_value_heads", config.kv_heads);
  json.Integer("head_dim", config.head_dim);
  if (config.intermediate > 0) json.Integer("intermediate_size", config.intermediate);
  if (arch != nullptr) AddExperts(config, arch->experts, &json);
  json.Text("hidden_act",
            config.activation == backend::Activation::kGeluTanh ? "gelu_pytorch_tanh" : "silu");
  json.Raw("rms_norm_eps", Exact(config.rms_eps));
  json.Integer("max_position_embeddings", config.max_position);
  json.Flag("tie_word_embeddings", config.tied_embeddings);
  json.Flag("attention_bias", config.attention.qkv_bias);
  json.Flag("qkv_bias", config.attention.qkv_bias);
  json.Flag("mlp_bias", config.mlp_bias && config.expert_names != ExpertNames::kGptOss);
  json.Flag("use_qk_norm", config.attention.qk_norm);
  AddLayers(config, &json);
  AddDelta(config, &json);
  AddLatent(config, &json);
  AddFactors(config, &json);
  json.Raw("rope_parameters", Ropes(config, arch != nullptr && arch->ropes_by_window));
  // transformers 4 reads the flat key only.
  json.Raw("rope_theta", Exact(config.rope.theta));
  if (!config.eos_ids.empty()) {
    json.Raw("eos_token_id", absl::StrCat("[", absl::StrJoin(config.eos_ids, ", "), "]"));
  }
  json.Text("torch_dtype", dtype);
  if (!quantization.empty()) json.Raw("quantization_config", quantization);
  return json.Done() + "\n";
}

std::string GenerationConfigJson(const ModelConfig& config) {
  file::JsonObjectText json;
  if (!config.eos_ids.empty()) {
    json.Raw("eos_token_id", absl::StrCat("[", absl::StrJoin(config.eos_ids, ", "), "]"));
  }
  json.Flag("do_sample", config.temperature > 0);
  if (config.temperature > 0) json.Raw("temperature", Exact(config.temperature));
  if (config.top_k > 0) json.Integer("top_k", config.top_k);
  if (config.top_p > 0) json.Raw("top_p", Exact(config.top_p));
  if (config.min_p > 0) json.Raw("min_p", Exact(config.min_p));
  if (config.repetition_penalty != 1) {
    json.Raw("repetition_penalty", Exact(config.repetition_penalty));
  }
  return json.Done() + "\n";
}

}  // namespace mainarch::model
