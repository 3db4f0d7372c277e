// SPDX-License-Identifier: MIT
#include <cmath>

#include "model/config_reader.h"

namespace mainarch::model {
namespace {

constexpr file::IntegerRange kDimRange = {16, 1024};
constexpr file::IntegerRange kLatentRange = {16, 4096};
constexpr int32_t kUnit = 16;  // rows of a panel

}  // namespace

Status ConfigReader::Latent() {
  LatentConfig& latent = config_.latent;
  const struct {
    absl::string_view key;
    file::IntegerRange range;
    int32_t by_default;
    int32_t* to;
  } kSizes[] = {{"kv_lora_rank", kLatentRange, 512, &latent.latent},
                {"qk_nope_head_dim", kDimRange, 128, &latent.still},
                {"qk_rope_head_dim", kDimRange, 64, &latent.turning},
                {"v_head_dim", kDimRange, 128, &latent.value}};
  for (const auto& size : kSizes) {
    ASSIGN_OR_RETURN(const auto value, text_.Integer(size.key, size.range));
    *size.to = static_cast<int32_t>(value.value_or(size.by_default));
    if (*size.to % kUnit == 0) continue;
    return text_.Bad(Code::kUnsupported, size.key, "is ", *size.to, ", which is not a multiple of ", kUnit);
  }
  latent.q_latent = 0;
  if (!text_.Find("q_lora_rank")) {
    // null is none; an absent key is the class' default.
    if (text_.members().at_key("q_lora_rank").error() != simdjson::SUCCESS) latent.q_latent = 1536;
  } else {
    ASSIGN_OR_RETURN(const auto rank, text_.Integer("q_lora_rank", kLatentRange));
    latent.q_latent = static_cast<int32_t>(*rank);
  }
  ASSIGN_OR_RETURN(latent.pairs, Flag("rope_interleave", true));
  RETURN_IF_ERROR(RefuseIfTrue({"attention_bias"}));
  config_.kv_heads = config_.heads;
  config_.attention.qk_norm = false;
  // What turns is all that a rope knows of a head.
  config_.head_dim = latent.turning;
  RETURN_IF_ERROR(Rope());
  config_.head_dim = latent.still + latent.turning;
  // The whole scale: transformers multiplies it by YaRN's, where that is said to be for all dimensions.
  config_.attention.scale = config_.AttentionScale();
  if (config_.rope.kind == RopeKind::kPlain) return OkStatus();
  ASSIGN_OR_RETURN(auto scaling, text_.Object("rope_scaling"));
  if (!scaling) {
    ASSIGN_OR_RETURN(scaling, text_.Object("rope_parameters"));
  }
  if (!scaling) return OkStatus();
  ASSIGN_OR_RETURN(const auto all_dim, scaling->Number("mscale_all_dim", {0, 100}));
  if (all_dim.value_or(0) == 0) return OkStatus();
  const double factor = config_.rope.factor;
  const double by = factor <= 1 ? 1 : 0.1 * *all_dim * std::log(factor) + 1;
  config_.attention.scale *= by * by;
  return OkStatus();
}

}  // namespace mainarch::model
