// SPDX-License-Identifier: MIT
//
// Qwen2 and Qwen2.5, dense: Llama with biases of Q, K and V.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 32768, .kv_heads = 32}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  config.attention.qkv_bias = true;
  RETURN_IF_ERROR(reader.QwenWindows());
  RETURN_IF_ERROR(reader.NoExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kQwen2 = {
    .model_type = "qwen2",
    .class_name = "Qwen2ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .other_classes = {"Qwen2Model"},
};

}  // namespace mainarch::model
