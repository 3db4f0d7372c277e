// SPDX-License-Identifier: MIT
//
// OLMo 2: norms behind attention and feed-forward alone, norms of Q and of K over all heads together.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 2048, .rms_eps = 1e-5f}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  config.attention.wide_qk_norm = true;
  config.norms.before = false;
  config.norms.after = true;
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kOlmo2 = {
    .model_type = "olmo2",
    .class_name = "Olmo2ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
