// SPDX-License-Identifier: MIT
#include "model/config_json.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

// Text that reads back as the same number.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }
std::string Exact(float value) { return absl::StrFormat("%.9g", static_cast<double>(value)); }

// One object, a key a line.
class Object {
 public:
  void Raw(absl::string_view key, absl::string_view json) {
    absl::StrAppend(&text_, text_.empty() ? "{\n" : ",\n", "  \"", key, "\": ", json);
  }
  void Text(absl::string_view key, absl::string_view value) {
    Raw(key, absl::StrCat("\"", value, "\""));
  }
  void Number(absl::string_view key, int64_t value) { Raw(key, absl::StrCat(value)); }
  void Flag(absl::string_view key, bool value) { Raw(key, value ? "true" : "false"); }
  std::string Done() const { return text_.empty() ? "{}\n" : absl::StrCat(text_, "\n}\n"); }

 private:
  std::string text_;
};

std::string Rope(const RopeConfig& rope, int32_t head_dim) {
  std::string text = absl::StrCat("{\"rope_type\": \"", rope.yarn ? "yarn" : rope.llama3 ? "llama3" : "default",
                                  "\", \"rope_theta\": ", Exact(rope.theta));
  if (rope.rotary_dim != head_dim) {
    double share = static_cast<double>(rope.rotary_dim) / head_dim;
    // Readers truncate: where the quotient falls short, a hair more.
    if (static_cast<int32_t>(head_dim * share) != rope.rotary_dim) {
      share = (rope.rotary_dim + 0.25) / head_dim;
    }
    absl::StrAppend(&text, ", \"partial_rotary_factor\": ", Exact(share));
  }
  if (rope.yarn || rope.llama3) {
    absl::StrAppend(&text, ", \"factor\": ", Exact(rope.factor),
                    ", \"original_max_position_embeddings\": ", rope.original_max_position);
  }
  if (rope.llama3) {
    absl::StrAppend(&text, ", \"low_freq_factor\": ", Exact(rope.low_freq_factor),
                    ", \"high_freq_factor\": ", Exact(rope.high_freq_factor));
  }
  if (rope.yarn) {
    absl::StrAppend(&text, ", \"attention_factor\": ", Exact(rope.attention_factor),
                    ", \"beta_fast\": ", Exact(rope.beta_fast),
                    ", \"beta_slow\": ", Exact(rope.beta_slow));
    absl::StrAppend(&text, ", \"truncate\": ", rope.truncate ? "true" : "false");
  }
  return text + "}";
}

void AddExperts(const ModelConfig& config, Object* json) {
  json->Number("num_experts", config.experts);
  json->Number("num_experts_per_tok", config.experts_per_token);
  json->Number("moe_intermediate_size", config.moe_intermediate);
  json->Flag("norm_topk_prob", config.norm_topk_prob);
  json->Number("decoder_sparse_step", 1);
  std::vector<size_t> dense;
  for (size_t layer = 0; layer < config.sparse_layer.size(); ++layer) {
    if (!config.sparse_layer[layer]) dense.push_back(layer);
  }
  json->Raw("mlp_only_layers", absl::StrCat("[", absl::StrJoin(dense, ", "), "]"));
}

}  // namespace

std::string ConfigJson(const ModelConfig& config, absl::string_view dtype,
                       absl::string_view quantization) {
  const Arch* arch = FindArch(config.model_type);
  Object json;
  if (arch != nullptr) json.Raw("architectures", absl::StrCat("[\"", arch->class_name, "\"]"));
  json.Text("model_type", config.model_type);
  json.Number("vocab_size", config.vocab);
  json.Number("hidden_size", config.hidden);
  json.Number("num_hidden_layers", config.layers);
  json.Number("num_attention_heads", config.heads);
  json.Number("num_key_value_heads", config.kv_heads);
  json.Number("head_dim", config.head_dim);
  if (config.intermediate > 0) json.Number("intermediate_size", config.intermediate);
  if (arch != nullptr && arch->experts) AddExperts(config, &json);
  json.Text("hidden_act", "silu");
  json.Raw("rms_norm_eps", Exact(config.rms_eps));
  json.Number("max_position_embeddings", config.max_position);
  json.Flag("tie_word_embeddings", config.tied_embeddings);
  json.Flag("attention_bias", config.attention.qkv_bias);
  json.Flag("use_sliding_window", false);
  json.Raw("rope_parameters", Rope(config.rope, config.head_dim));
  // transformers 4 reads the flat key only.
  json.Raw("rope_theta", Exact(config.rope.theta));
  if (!config.eos_ids.empty()) {
    json.Raw("eos_token_id", absl::StrCat("[", absl::StrJoin(config.eos_ids, ", "), "]"));
  }
  json.Text("torch_dtype", dtype);
  if (!quantization.empty()) json.Raw("quantization_config", quantization);
  return json.Done();
}

std::string GenerationConfigJson(const ModelConfig& config) {
  Object json;
  if (!config.eos_ids.empty()) {
    json.Raw("eos_token_id", absl::StrCat("[", absl::StrJoin(config.eos_ids, ", "), "]"));
  }
  json.Flag("do_sample", config.temperature > 0);
  if (config.temperature > 0) json.Raw("temperature", Exact(config.temperature));
  if (config.top_k > 0) json.Number("top_k", config.top_k);
  if (config.top_p > 0) json.Raw("top_p", Exact(config.top_p));
  if (config.min_p > 0) json.Raw("min_p", Exact(config.min_p));
  if (config.repetition_penalty != 1) {
    json.Raw("repetition_penalty", Exact(config.repetition_penalty));
  }
  return json.Done();
}

}  // namespace mainarch::model
