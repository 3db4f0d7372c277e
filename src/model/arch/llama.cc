// SPDX-License-Identifier: MIT
//
// Llama 2 and 3 and what is built like them, dense: like Qwen3 without norms of Q and K, in some
// models with biases.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 2048}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  ASSIGN_OR_RETURN(config.mlp_bias, reader.Flag("mlp_bias", false));
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kLlama = {
    .model_type = "llama",
    .class_name = "LlamaForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .other_classes = {"LlamaModel"},
};

}  // namespace mainarch::model
