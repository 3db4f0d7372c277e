// SPDX-License-Identifier: MIT
//
// Ministral 8B: Mistral whose layers differ in having a window.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 131072, .kv_heads = 8}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(4096));
  const std::vector<bool> all(static_cast<size_t>(config.layers), true);
  RETURN_IF_ERROR(reader.LayerWindows(window, all));
  RETURN_IF_ERROR(reader.NoExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kMinistral = {
    .model_type = "ministral",
    .class_name = "MinistralForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
