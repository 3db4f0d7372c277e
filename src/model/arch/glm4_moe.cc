// SPDX-License-Identifier: MIT
//
// GLM-4.5, 4.6, 4.7: experts chosen by corrected sigmoids in groups, one or more for every token,
// the first layers dense; half of each head turns.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 131072,
                                 .rms_eps = 1e-5f,
                                 .kv_heads = 8,
                                 .partial_rotary = true,
                                 .partial_rotary_factor = 0.5}));
  ModelConfig& config = reader.config();
  ASSIGN_OR_RETURN(config.attention.qk_norm, reader.Flag("use_qk_norm", false));
  ASSIGN_OR_RETURN(config.attention.qkv_bias, reader.Flag("attention_bias", false));
  config.router.sigmoid = config.router.correction = true;
  RETURN_IF_ERROR(reader.RoutedExperts({}));
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kGlm4Moe = {
    .model_type = "glm4_moe",
    .class_name = "Glm4MoeForCausalLM",
    .experts = ExpertKeys::kRouted,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
