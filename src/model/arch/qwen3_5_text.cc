// SPDX-License-Identifier: MIT
//
// Qwen3.5, its dense text models (0.8B to 27B), also inside the wrappers that see: gated delta nets in
// three layers of four, gated attention in the fourth, a layer that drafts.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 32768,
                                 .kv_heads = 4,
                                 .head_dim = 256,
                                 .partial_rotary = true,
                                 .partial_rotary_factor = 0.25}));
  RETURN_IF_ERROR(reader.Hybrid());
  RETURN_IF_ERROR(reader.NoExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }
void Draft(Builder& builder) { builder.DraftHead(); }

}  // namespace

extern const Arch kQwen35Text = {
    .model_type = "qwen3_5_text",
    .class_name = "Qwen3_5ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .draft = Draft,
    .other_types = {"qwen3_5"},
    .other_classes = {"Qwen3_5ForConditionalGeneration", "Qwen3_5TextModel"},
};

}  // namespace mainarch::model
