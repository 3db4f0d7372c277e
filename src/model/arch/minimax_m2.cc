// SPDX-License-Identifier: MIT
//
// MiniMax-M2: experts chosen by corrected sigmoids in every layer, norms of Q and of K over all
// heads together, half of each head turns.
#include <algorithm>

#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  ModelConfig& config = reader.config();
  Defaults defaults = {
      .max_position = 196608, .kv_heads = 8, .head_dim = 128, .theta = 5e6, .partial_rotary = true};
  // The released files say rotary_dim, which transformers 5.17 does not look at.
  ASSIGN_OR_RETURN(const auto turning, reader.text().Integer("rotary_dim", {2, 1024}));
  ASSIGN_OR_RETURN(const auto head_dim, reader.text().Integer("head_dim", {2, 1024}));
  if (turning) {
    defaults.partial_rotary_factor =
        std::min(1.0, static_cast<double>(*turning) / static_cast<double>(head_dim.value_or(128)));
  }
  RETURN_IF_ERROR(reader.Common(defaults));
  config.attention.qk_norm = false;
  config.attention.wide_qk_norm = true;
  config.expert_names = ExpertNames::kMixtral;
  config.norm_topk_prob = config.router.sigmoid = config.router.correction = true;
  RETURN_IF_ERROR(reader.LocalExperts());
  return reader.Rope();
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kMinimaxM2 = {
    .model_type = "minimax_m2",
    .class_name = "MiniMaxM2ForCausalLM",
    .experts = ExpertKeys::kLocal,
    .read = Read,
    .build = Build,
};

}  // namespace mainarch::model
