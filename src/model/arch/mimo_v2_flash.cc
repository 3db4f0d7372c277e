// SPDX-License-Identifier: MIT
//
// MiMo-V2-Flash: heads whose V is smaller than K, and multiplied; windows in five layers of six, with sinks and twice the key
// heads; a third of each head turns; experts chosen by corrected sigmoids. Its own files have other keys than transformers
// writes: both are read, theirs first.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

constexpr int64_t kMost = int64_t{1} << 28;

// Layers with a window are as the others, as far as nothing else is known.
Status CheckWindowHeads(ConfigReader& reader) {
  const ModelConfig& config = reader.config();
  for (const auto& [key, value] : {std::pair("swa_num_attention_heads", config.heads), std::pair("swa_head_dim", config.head_dim),
                                   std::pair("swa_v_head_dim", config.ValueDim())}) {
    ASSIGN_OR_RETURN(const auto own, reader.text().Integer(key, {1, kMost}));
    if (own.value_or(value) == value) continue;
    return reader.text().Bad(Code::kUnsupported, key, "is ", *own, ", which is not supported; it must be ", value,
                             ", as of layers without a window");
  }
  return OkStatus();
}

// `sliding_window_size` is without the token itself.
StatusOr<int32_t> WindowOf(ConfigReader& reader) {
  ASSIGN_OR_RETURN(const auto before, reader.text().Integer("sliding_window_size", {0, kMost - 1}));
  if (before) return static_cast<int32_t>(*before + 1);
  return reader.Window(129);
}

Status Windows(ConfigReader& reader) {
  ModelConfig& config = reader.config();
  ASSIGN_OR_RETURN(const int32_t window, WindowOf(reader));
  ASSIGN_OR_RETURN(std::vector<bool> slides, reader.LayerFlags("hybrid_layer_pattern"));
  for (int32_t i = 0; slides.size() < static_cast<size_t>(config.layers); ++i) slides.push_back(i != 0 && (i + 1) % 6 != 0);
  RETURN_IF_ERROR(reader.LayerWindows(window, slides));
  ASSIGN_OR_RETURN(const auto kv_heads, reader.text().Integer("swa_num_key_value_heads", {1, 1024}));
  ASSIGN_OR_RETURN(const bool sinks, reader.Flag("add_swa_attention_sink_bias", true));
  ASSIGN_OR_RETURN(const bool full_sinks, reader.Flag("add_full_attention_sink_bias", false));
  config.attention.sinks = sinks || full_sinks;
  config.layer_attention.resize(static_cast<size_t>(config.layers));
  for (LayerAttention& layer : config.layer_attention) {
    layer.sinks = layer.window > 0 ? sinks : full_sinks;
    if (layer.window > 0) layer.kv_heads = static_cast<int32_t>(kv_heads.value_or(2 * int64_t{config.kv_heads}));
    if (layer.kv_heads == 0 || config.heads % layer.kv_heads == 0) continue;
    return reader.text().Bad(Code::kBadModel, "swa_num_key_value_heads", "is ", layer.kv_heads,
                             ", which does not divide num_attention_heads ", config.heads);
  }
  return OkStatus();
}

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 131072,
                                 .rms_eps = 1e-5f,
                                 .kv_heads = 4,
                                 .head_dim = 192,
                                 .theta = 5e6,
                                 .partial_rotary = true,
                                 .partial_rotary_factor = 0.334,
                                 .eps_key = "layernorm_epsilon"}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  ASSIGN_OR_RETURN(const auto value_dim, reader.text().Integer("v_head_dim", {2, 1024}));
  config.value_dim = static_cast<int32_t>(value_dim.value_or(128));
  RETURN_IF_ERROR(CheckWindowHeads(reader));
  ASSIGN_OR_RETURN(config.attention.qkv_bias, reader.Flag("attention_bias", false));
  const bool none = reader.HasKey("attention_value_scale");  // null, if no number
  ASSIGN_OR_RETURN(config.attention.value_scale, reader.Factor("attention_value_scale", none ? 1 : 0.707));
  RETURN_IF_ERROR(Windows(reader));
  config.router.sigmoid = config.router.correction = true;
  RETURN_IF_ERROR(reader.RoutedExperts({.shared = 0}));
  RETURN_IF_ERROR(reader.SparseLayers("mlp_layer_types", "moe_layer_freq"));
  return reader.RopeByWindow("swa_rope_theta", 1e4);
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kMimoV2Flash = {
    .model_type = "mimo_v2_flash",
    .class_name = "MiMoV2FlashForCausalLM",
    .experts = ExpertKeys::kRouted,
    .read = Read,
    .build = Build,
    .ropes_by_window = true,
};

}  // namespace mainarch::model
