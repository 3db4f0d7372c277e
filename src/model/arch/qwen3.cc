// SPDX-License-Identifier: MIT
//
// Qwen3, dense (models.md §1.2, §2.1, §2.3).
#include "model/arch/arch.h"

namespace mainarch::model {

void BuildQwen3(Builder& builder) {
  const ModelConfig& config = builder.config();
  builder.Embed("model.embed_tokens");
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    builder.Attention(prefix);
    builder.DenseFfn(prefix);
    builder.EndLayer();
  }
  builder.Logits("model.norm.weight", config.tied_embeddings ? "model.embed_tokens" : "lm_head");
}

}  // namespace mainarch::model
