// SPDX-License-Identifier: MIT
//
// Phi-3, Phi-3.5 and Phi-4 (dense): Llama with Q, K, V in one matrix, gate and up in another,
// LongRoPE, and in Phi-4-mini heads that turn in part.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 4096, .rms_eps = 1e-5f, .partial_rotary = true}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  config.attention.fused_qkv = config.fused_gate_up = true;
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(0));
  reader.WindowInAll(window);
  RETURN_IF_ERROR(reader.NoExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kPhi3 = {
    .model_type = "phi3",
    .class_name = "Phi3ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
