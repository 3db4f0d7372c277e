// SPDX-License-Identifier: MIT
//
// Qwen3, dense (models.md §1.2, §2.1, §2.3).
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.RefuseIfTrue({"mlp_bias", "attn_output_gate"}));
  RETURN_IF_ERROR(reader.Common({.max_position = 32768, .kv_heads = 32, .head_dim = 128}));
  RETURN_IF_ERROR(reader.QwenWindows());
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kQwen3 = {
    .model_type = "qwen3",
    .class_name = "Qwen3ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .other_classes = {"Qwen3Model"},
};

}  // namespace mainarch::model
