// SPDX-License-Identifier: MIT
//
// DeepSeek V3, R1 and Kimi K2: latent attention, experts chosen by corrected sigmoids in groups, one or more for every
// token, the first layers dense.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 4096}));
  ModelConfig& config = reader.config();
  RETURN_IF_ERROR(reader.Latent());
  config.router.sigmoid = config.router.correction = true;
  return reader.RoutedExperts({.dense = 3, .groups = 8, .chosen_groups = 4, .scale = 2.5});
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kDeepSeekV3 = {
    .model_type = "deepseek_v3",
    .class_name = "DeepseekV3ForCausalLM",
    .experts = ExpertKeys::kRouted,
    .read = Read,
    .build = Build,
    .other_types = {"kimi_k2"},
};

}  // namespace mainarch::model
