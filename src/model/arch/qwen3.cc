// SPDX-License-Identifier: MIT
//
// Qwen3, dense (models.md §1.2, §2.1, §2.3).
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.RefuseIfTrue(
      {"attention_bias", "mlp_bias", "use_sliding_window", "attn_output_gate"}));
  RETURN_IF_ERROR(reader.Activation("silu"));
  RETURN_IF_ERROR(reader.QuantMethod());
  RETURN_IF_ERROR(reader.Geometry());
  RETURN_IF_ERROR(reader.Heads());
  RETURN_IF_ERROR(reader.LayerTypes());
  RETURN_IF_ERROR(reader.TiedEmbeddings());
  RETURN_IF_ERROR(reader.NoExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kQwen3 = {"qwen3", "Qwen3ForCausalLM", false, Read, Build};

}  // namespace mainarch::model
