// SPDX-License-Identifier: MIT
//
// Gemma 3, its text model: norms of weight 1 + w before and behind, GeGLU, embeddings times
// sqrt(hidden), windows in five layers of six, which turn by another theta.
#include <cmath>

#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.RefuseIfTrue({"use_bidirectional_attention"}));
  RETURN_IF_ERROR(reader.RefuseIfThere({"final_logit_softcapping", "attn_logit_softcapping"}));
  ModelConfig& config = reader.config();
  RETURN_IF_ERROR(reader.Common(
      {.max_position = 131072, .kv_heads = 4, .head_dim = 256, .theta = 1e6, .tied = true}));
  config.activation = backend::Activation::kGeluTanh;
  RETURN_IF_ERROR(reader.Activation("hidden_activation"));
  config.norms.after = config.norms.plus_one = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  ASSIGN_OR_RETURN(const double scalar, reader.Factor("query_pre_attn_scalar", 256));
  config.attention.scale = 1 / std::sqrt(scalar);
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(4096));
  ASSIGN_OR_RETURN(const auto pattern, reader.text().Integer("sliding_window_pattern", {1, 1024}));
  std::vector<bool> slides;
  for (int32_t i = 0; i < config.layers; ++i) slides.push_back((i + 1) % pattern.value_or(6) != 0);
  RETURN_IF_ERROR(reader.LayerWindows(window, slides));
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.RopeByWindow("rope_local_base_freq", 1e4);
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kGemma3Text = {
    .model_type = "gemma3_text",
    .class_name = "Gemma3ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .ropes_by_window = true,
    .other_types = {"gemma3"},
    .other_classes = {"Gemma3ForConditionalGeneration", "Gemma3TextModel"},
};

}  // namespace mainarch::model
