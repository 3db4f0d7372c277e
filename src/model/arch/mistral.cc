// SPDX-License-Identifier: MIT
//
// Mistral: Llama with a window in every layer, where sliding_window says one.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 131072, .kv_heads = 8}));
  reader.config().attention.qk_norm = false;
  // Missing, it is that of the first Mistral.
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(4096));
  reader.WindowInAll(window);
  RETURN_IF_ERROR(reader.NoExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kMistral = {
    .model_type = "mistral",
    .class_name = "MistralForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .other_classes = {"MistralModel"},
};

}  // namespace mainarch::model
