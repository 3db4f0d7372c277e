// SPDX-License-Identifier: MIT
//
// Mixtral: Mistral with experts in every layer.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(
      reader.Common({.max_position = 131072, .rms_eps = 1e-5f, .kv_heads = 8, .theta = 1e6}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  config.expert_names = ExpertNames::kMixtral;
  config.norm_topk_prob = true;
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(0));
  reader.WindowInAll(window);
  RETURN_IF_ERROR(reader.LocalExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kMixtral = {
    .model_type = "mixtral",
    .class_name = "MixtralForCausalLM",
    .experts = ExpertKeys::kLocal,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
