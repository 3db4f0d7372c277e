// SPDX-License-Identifier: MIT
//
// Qwen3-Next (80B-A3B, Coder-Next): gated delta nets in three layers of four, gated attention in the
// fourth, 512 experts and one for every token, a layer that drafts.
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
  config.delta.by_key_head = true;
  RETURN_IF_ERROR(reader.Experts());
  ASSIGN_OR_RETURN(config.norm_topk_prob, reader.Flag("norm_topk_prob", true));
  RETURN_IF_ERROR(reader.SharedExpert(512));
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }
void Draft(Builder& builder) { builder.DraftHead(); }

}  // namespace

extern const Arch kQwen3Next = {
    .model_type = "qwen3_next",
    .class_name = "Qwen3NextForCausalLM",
    .experts = ExpertKeys::kNumber,
    .read = Read,
    .build = Build,
    .draft = Draft,
};

}  // namespace mainarch::model
