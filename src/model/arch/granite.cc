// SPDX-License-Identifier: MIT
//
// Granite 3, dense: Llama with factors for embeddings, scores, what a block adds, and logits.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 2048}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  ASSIGN_OR_RETURN(config.mlp_bias, reader.Flag("mlp_bias", false));
  ASSIGN_OR_RETURN(config.embedding_scale, reader.Factor("embedding_multiplier", 1));
  ASSIGN_OR_RETURN(config.residual_scale, reader.Factor("residual_multiplier", 1));
  ASSIGN_OR_RETURN(config.attention.scale, reader.Factor("attention_multiplier", 1));
  ASSIGN_OR_RETURN(const double divisor, reader.Factor("logits_scaling", 1));
  config.logits_scale = 1 / divisor;
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kGranite = {
    .model_type = "granite",
    .class_name = "GraniteForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
