// SPDX-License-Identifier: MIT
//
// Llama 2 and 3, dense: like Qwen3 without norms of Q and K, in some models with biases.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.RefuseIfTrue({"mlp_bias"}));
  RETURN_IF_ERROR(reader.Activation("silu"));
  RETURN_IF_ERROR(reader.QuantMethod());
  RETURN_IF_ERROR(reader.Geometry());
  RETURN_IF_ERROR(reader.Heads());
  RETURN_IF_ERROR(reader.LayerTypes());
  RETURN_IF_ERROR(reader.TiedEmbeddings());
  RETURN_IF_ERROR(reader.NoExperts());
  reader.config().attention.qk_norm = false;
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kLlama = {"llama", "LlamaForCausalLM", false, Read, Build};

}  // namespace mainarch::model
