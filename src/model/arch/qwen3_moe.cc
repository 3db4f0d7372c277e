// SPDX-License-Identifier: MIT
//
// Qwen3-MoE: Qwen3 with a mixture of experts in the layers that config.sparse_layer names
// (models.md §1.3, §2.6).
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.RefuseIfTrue({"mlp_bias", "attn_output_gate"}));
  RETURN_IF_ERROR(reader.Common({.max_position = 32768, .kv_heads = 4}));
  // Unlike Qwen3 it has the window in every layer.
  ASSIGN_OR_RETURN(const bool slides, reader.Flag("use_sliding_window", false));
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(4096));
  if (slides) reader.WindowInAll(window);
  RETURN_IF_ERROR(reader.Experts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kQwen3Moe = {
    .model_type = "qwen3_moe",
    .class_name = "Qwen3MoeForCausalLM",
    .experts = ExpertKeys::kNumber,
    .read = Read,
    .build = Build,
    .other_classes = {"Qwen3MoeModel"},
};

}  // namespace mainarch::model
