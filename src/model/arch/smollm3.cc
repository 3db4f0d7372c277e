// SPDX-License-Identifier: MIT
//
// SmolLM3: Llama some of whose layers do not turn their heads, by default every fourth.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status ReadStill(ConfigReader& reader, std::vector<bool>* still) {
  const file::JsonFields& text = reader.text();
  const size_t layers = static_cast<size_t>(reader.config().layers);
  ASSIGN_OR_RETURN(const auto interval, text.Integer("no_rope_layer_interval", {1, 1024}));
  for (size_t i = 0; i < layers; ++i) {
    still->push_back((i + 1) % static_cast<size_t>(interval.value_or(4)) == 0);
  }
  ASSIGN_OR_RETURN(const auto list, text.Array("no_rope_layers"));
  if (!list) return OkStatus();
  if (list->size() != layers) {
    return text.Bad(Code::kBadModel, "no_rope_layers", "has ", list->size(),
                    " entries, num_hidden_layers is ", layers);
  }
  size_t index = 0;
  for (const simdjson::dom::element item : *list) {
    const std::string what = absl::StrCat("no_rope_layers[", index, "]");
    ASSIGN_OR_RETURN(const int64_t turns, text.IntegerOf(item, what, {0, 1}));
    (*still)[index++] = turns == 0;
  }
  return OkStatus();
}

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(
      reader.Common({.max_position = 32768, .kv_heads = 4, .theta = 2e6, .tied = true}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  ASSIGN_OR_RETURN(config.mlp_bias, reader.Flag("mlp_bias", false));
  std::vector<bool> still;  // does not turn
  RETURN_IF_ERROR(ReadStill(reader, &still));
  ASSIGN_OR_RETURN(const bool slides, reader.Flag("use_sliding_window", false));
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(0));
  RETURN_IF_ERROR(reader.LayerWindows(slides ? window : 0, still));
  config.layer_attention.resize(still.size());
  for (size_t i = 0; i < still.size(); ++i) {
    if (still[i]) config.layer_attention[i].rope = kNoRope;
  }
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kSmolLm3 = {
    .model_type = "smollm3",
    .class_name = "SmolLM3ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
