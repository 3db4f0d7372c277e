// SPDX-License-Identifier: MIT
//
// Qwen3.5 with experts (35B-A3B to 397B-A17B), its text model, also inside the wrappers that see: as
// Qwen3-Next, but every layer has experts and their weights are always divided by their sum.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 32768,
                                 .kv_heads = 2,
                                 .head_dim = 256,
                                 .partial_rotary = true,
                                 .partial_rotary_factor = 0.25}));
  RETURN_IF_ERROR(reader.Hybrid());
  ModelConfig& config = reader.config();
  RETURN_IF_ERROR(reader.Experts());
  config.sparse_layer.assign(static_cast<size_t>(config.layers), config.experts > 0);
  config.norm_topk_prob = true;
  RETURN_IF_ERROR(reader.SharedExpert(512));
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }
void Draft(Builder& builder) { builder.DraftHead(); }

}  // namespace

extern const Arch kQwen35MoeText = {
    .model_type = "qwen3_5_moe_text",
    .class_name = "Qwen3_5MoeForCausalLM",
    .experts = ExpertKeys::kNumber,
    .read = Read,
    .build = Build,
    .draft = Draft,
    .other_types = {"qwen3_5_moe"},
    .other_classes = {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeTextModel"},
};

}  // namespace mainarch::model
