// SPDX-License-Identifier: MIT
//
// config.json, then, after a byte 0x01 if there is one, generation_config.json. A config that is
// accepted satisfies what the rest of the library takes for granted, and survives being written.
#include <cmath>

#include "fuzz.h"
#include "model/config.h"
#include "model/config_json.h"

namespace {

using namespace mainarch;

void CheckRope(const model::ModelConfig& config, const model::RopeConfig& rope) {
  FUZZ_CHECK(rope.rotary_dim >= 2 && rope.rotary_dim <= config.head_dim);
  FUZZ_CHECK(std::isfinite(rope.theta) && rope.factor >= 1 && rope.attention_factor > 0);
  if (rope.kind == model::RopeKind::kLongRope) {
    FUZZ_CHECK(rope.divisors.size() == static_cast<size_t>(rope.rotary_dim) / 2);
  }
  if (rope.kind != model::RopeKind::kPlain && rope.kind != model::RopeKind::kLinear) {
    FUZZ_CHECK(rope.original_max_position >= 1);
  }
}

void CheckConfig(const model::ModelConfig& config) {
  FUZZ_CHECK(config.hidden >= 1 && config.layers >= 1 && config.vocab >= 1);
  FUZZ_CHECK(config.kv_heads >= 1 && config.heads % config.kv_heads == 0);
  FUZZ_CHECK(config.head_dim >= 2 && config.head_dim % 2 == 0);
  CheckRope(config, config.rope);
  for (const model::RopeConfig& rope : config.more_ropes) CheckRope(config, rope);
  const size_t layers = static_cast<size_t>(config.layers);
  FUZZ_CHECK(config.layer_attention.empty() || config.layer_attention.size() == layers);
  for (const model::LayerAttention& layer : config.layer_attention) {
    FUZZ_CHECK(layer.window >= 0 && layer.rope >= model::kNoRope);
    FUZZ_CHECK(layer.rope <= static_cast<int32_t>(config.more_ropes.size()));
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    FUZZ_CHECK(config.KvHeadsOf(layer) >= 1 && config.heads % config.KvHeadsOf(layer) == 0);
  }
  FUZZ_CHECK(config.ValueDim() >= 1 && std::isfinite(config.attention.value_scale));
  FUZZ_CHECK(config.norms.before || config.norms.after);
  FUZZ_CHECK(std::isfinite(config.AttentionScale()) && config.AttentionScale() > 0);
  const model::RouterConfig& router = config.router;
  FUZZ_CHECK(router.groups >= 1 && router.chosen_groups >= 1);
  FUZZ_CHECK(router.groups == 1 ||
             (config.experts % router.groups == 0 && config.experts / router.groups >= 2 &&
              config.experts / router.groups * router.chosen_groups >= config.experts_per_token));
  FUZZ_CHECK(config.shared_intermediate >= 0);
  FUZZ_CHECK(config.rms_eps > 0 && std::isfinite(config.rms_eps));
  FUZZ_CHECK(config.max_position >= 1);
  FUZZ_CHECK(config.sparse_layer.size() == static_cast<size_t>(config.layers));
  for (const bool sparse : config.sparse_layer) {
    FUZZ_CHECK(sparse
                   ? config.experts_per_token >= 1 && config.experts_per_token <= config.experts &&
                         config.moe_intermediate >= 1
                   : config.intermediate >= 1);
  }
  for (const uint32_t id : config.eos_ids) FUZZ_CHECK(id < static_cast<uint32_t>(config.vocab));
  FUZZ_CHECK(config.temperature >= 0 && config.top_p >= 0 && config.top_p <= 1);
  FUZZ_CHECK(config.min_p >= 0 && config.min_p <= 1 && config.repetition_penalty > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\x01');
  const absl::string_view config_json = text.substr(0, cut);
  const absl::string_view generation =
      cut == absl::string_view::npos ? absl::string_view() : text.substr(cut + 1);
  const auto config = model::ParseConfig(config_json, generation, "d");
  if (!config.ok()) {
    fuzz::CheckError(config.status(), "d/");
    return 0;
  }
  CheckConfig(*config);
  const std::string written = model::ConfigJson(*config, "bfloat16", "");
  const auto again = model::ParseConfig(written, model::GenerationConfigJson(*config), "d");
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->sparse_layer == config->sparse_layer);
  FUZZ_CHECK(again->rope.rotary_dim == config->rope.rotary_dim);
  FUZZ_CHECK(again->rope.theta == config->rope.theta);
  for (size_t layer = 0; layer < static_cast<size_t>(config->layers); ++layer) {
    FUZZ_CHECK(again->KvHeadsOf(layer) == config->KvHeadsOf(layer) && again->HasSinks(layer) == config->HasSinks(layer));
  }
  FUZZ_CHECK(again->ValueDim() == config->ValueDim() && again->attention.value_scale == config->attention.value_scale);
  FUZZ_CHECK(again->rms_eps == config->rms_eps);
  FUZZ_CHECK(again->max_position == config->max_position);
  FUZZ_CHECK(again->eos_ids == config->eos_ids);
  FUZZ_CHECK(again->temperature == config->temperature);
  return 0;
}
