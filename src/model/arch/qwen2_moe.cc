// SPDX-License-Identifier: MIT
//
// Qwen2-MoE (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B): Qwen2 with experts, beside which one works for
// every token, times a gate of its own.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 32768, .kv_heads = 16}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  ASSIGN_OR_RETURN(config.attention.qkv_bias, reader.Flag("qkv_bias", true));
  // Every second layer from the first on, below max_window_layers.
  ASSIGN_OR_RETURN(const bool slides, reader.Flag("use_sliding_window", false));
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(4096));
  ASSIGN_OR_RETURN(const auto most, reader.text().Integer("max_window_layers", {0, 1024}));
  std::vector<bool> pattern;
  for (int32_t i = 0; i < config.layers; ++i) {
    pattern.push_back(slides && i % 2 == 0 && i < most.value_or(28));
  }
  RETURN_IF_ERROR(reader.LayerWindows(slides ? window : 0, pattern));
  RETURN_IF_ERROR(reader.Experts());
  RETURN_IF_ERROR(reader.SharedExpert(5632));
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kQwen2Moe = {
    .model_type = "qwen2_moe",
    .class_name = "Qwen2MoeForCausalLM",
    .experts = ExpertKeys::kNumber,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
