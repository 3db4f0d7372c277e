// SPDX-License-Identifier: MIT
//
// gpt-oss: experts with biases and a clamped SwiGLU, sinks, biases of attention, a window in every
// second layer.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common(
      {.max_position = 131072, .rms_eps = 1e-5f, .kv_heads = 8, .head_dim = 64, .theta = 1.5e5}));
  ModelConfig& config = reader.config();
  config.activation = backend::Activation::kClampedSwiglu;
  config.mlp_bias = true;
  config.expert_names = ExpertNames::kGptOss;
  config.router.bias = true;
  config.norm_topk_prob = true;  // the softmax over those chosen
  config.attention.qk_norm = false;
  config.attention.sinks = true;
  ASSIGN_OR_RETURN(const bool bias, reader.Flag("attention_bias", true));
  config.attention.qkv_bias = config.attention.o_bias = bias;
  for (const auto& [key, known] : {std::pair("swiglu_limit", backend::kSwigluLimit), std::pair("swiglu_alpha", backend::kSwigluAlpha)}) {
    ASSIGN_OR_RETURN(const auto value, reader.text().Number(key, {0, 1e6}));
    if (value.value_or(known) == known) continue;
    return reader.text().Bad(Code::kUnsupported, key, "is ", *value, ", which is not supported; it must be ", known);
  }
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(128));
  std::vector<bool> slides;
  for (int32_t i = 0; i < config.layers; ++i) slides.push_back(i % 2 == 0);
  RETURN_IF_ERROR(reader.LayerWindows(window, slides));
  RETURN_IF_ERROR(reader.LocalExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kGptOss = {
    .model_type = "gpt_oss",
    .class_name = "GptOssForCausalLM",
    .experts = ExpertKeys::kLocal,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
