// SPDX-License-Identifier: MIT
//
// How a config.json says that heads are turned. Definitions: transformers' modeling_rope_utils.
#include <algorithm>
#include <cmath>

#include "model/config_reader.h"

namespace mainarch::model {
namespace {

using file::IntegerRange;
using file::JsonFields;
using file::NumberRange;
using file::Quote;
using file::Show;
using file::View;
using simdjson::dom::element;

constexpr IntegerRange kPositionRange = {1, int64_t{1} << 28};
constexpr NumberRange kThetaRange = {1, 1e12};
constexpr NumberRange kFactorRange = {1, 1024};

// A key that is not known here would change the angles without a word. "attn_factor", "finetuned"
// and the keys of mrope change nothing in transformers, either.
Status CheckRopeKeys(const JsonFields& scaling) {
  constexpr absl::string_view kKeys[] = {"rope_type",        "type",
                                         "rope_theta",       "partial_rotary_factor",
                                         "mrope_section",    "mrope_interleaved",
                                         "factor",           "original_max_position_embeddings",
                                         "attention_factor", "beta_fast",
                                         "beta_slow",        "truncate",
                                         "low_freq_factor",  "high_freq_factor",
                                         "mscale",           "mscale_all_dim",
                                         "short_factor",     "long_factor",
                                         "attn_factor",      "finetuned"};
  for (const auto& member : scaling.members()) {
    if (member.value.is_null()) continue;
    if (std::find(std::begin(kKeys), std::end(kKeys), View(member.key)) == std::end(kKeys)) {
      return scaling.Bad(Code::kUnsupported, Quote(View(member.key)), "is ", Show(member.value),
                         ", a key that is not supported");
    }
  }
  return OkStatus();
}

// 0.1 m ln(scale) + 1: YaRN's own scale of cos and sin.
double YarnScale(double scale, double m) { return scale <= 1 ? 1 : 0.1 * m * std::log(scale) + 1; }

}  // namespace

// rope_scaling, else rope_parameters, as transformers 5 does it.
Status ConfigReader::Rope() {
  ASSIGN_OR_RETURN(auto scaling, text_.Object("rope_scaling"));
  if (!scaling || scaling->members().size() == 0) {
    ASSIGN_OR_RETURN(scaling, text_.Object("rope_parameters"));
  }
  ASSIGN_OR_RETURN(const auto theta, text_.Number("rope_theta", kThetaRange));
  return ReadRope(scaling, theta.value_or(defaults_.theta), &config_.rope);
}

Status ConfigReader::RopeByWindow(absl::string_view local_key, double local_theta) {
  ASSIGN_OR_RETURN(const auto parameters, text_.Object("rope_parameters"));
  ASSIGN_OR_RETURN(auto full, text_.Object("rope_scaling"));
  std::optional<JsonFields> local;
  if (parameters && parameters->members().size() > 0) {
    for (const auto& member : parameters->members()) {
      if (View(member.key) == "full_attention" || View(member.key) == "sliding_attention") continue;
      return parameters->Bad(Code::kUnsupported, Quote(View(member.key)), "is ", Show(member.value),
                             ", which is not supported; known are \"full_attention\" and "
                             "\"sliding_attention\"");
    }
    if (!full) {
      ASSIGN_OR_RETURN(full, parameters->Object("full_attention"));
    }
    ASSIGN_OR_RETURN(local, parameters->Object("sliding_attention"));
  }
  ASSIGN_OR_RETURN(const auto theta, text_.Number("rope_theta", kThetaRange));
  RETURN_IF_ERROR(ReadRope(full, theta.value_or(defaults_.theta), &config_.rope));
  if (!local_key.empty()) {
    ASSIGN_OR_RETURN(const auto flat, text_.Number(local_key, kThetaRange));
    local_theta = flat.value_or(local_theta);
  }
  RopeConfig other;
  RETURN_IF_ERROR(ReadRope(local, local_theta, &other));
  if (other == config_.rope) return OkStatus();
  config_.more_ropes.push_back(std::move(other));
  for (LayerAttention& layer : config_.layer_attention) layer.rope = layer.window == 0 ? 0 : 1;
  return OkStatus();
}

// `theta` is what flat keys, or the class, say: an object's own comes first.
Status ConfigReader::ReadRope(const std::optional<JsonFields>& scaling, double theta,
                              RopeConfig* rope) {
  constexpr NumberRange kPartialRange = {0, 1, true};
  std::optional<double> own_theta, partial;
  if (scaling) {
    RETURN_IF_ERROR(CheckRopeKeys(*scaling));
    ASSIGN_OR_RETURN(own_theta, scaling->Number("rope_theta", kThetaRange));
    ASSIGN_OR_RETURN(partial, scaling->Number("partial_rotary_factor", kPartialRange));
  }
  ASSIGN_OR_RETURN(const auto flat_partial, text_.Number("partial_rotary_factor", kPartialRange));
  rope->theta = own_theta.value_or(theta);
  double share = partial ? *partial : flat_partial.value_or(defaults_.partial_rotary_factor);
  if (!defaults_.partial_rotary) share = 1;
  rope->rotary_dim = static_cast<int32_t>(config_.head_dim * share);
  if (rope->rotary_dim < 2 || rope->rotary_dim % 2 != 0) {
    return text_.Bad(Code::kBadModel, "partial_rotary_factor", "is ", share, ", which rotates ",
                     rope->rotary_dim, " of head_dim ", config_.head_dim,
                     "; the limits are an even number from 2 up");
  }
  return scaling ? RopeType(*scaling, rope) : OkStatus();
}

Status ConfigReader::RopeType(const JsonFields& scaling, RopeConfig* rope) {
  const absl::string_view key = scaling.Find("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const auto type, scaling.String(key));
  if (!type || *type == "default") return OkStatus();
  const bool phi = config_.model_type == "phi3" && (*type == "su" || *type == "yarn");
  if (*type == "longrope" || phi) return LongRope(scaling, rope);
  if (*type == "yarn") return Yarn(scaling, rope);
  if (*type == "llama3") return Llama3(scaling, rope);
  if (*type == "linear") {
    rope->kind = RopeKind::kLinear;
    return ScalingFactor(scaling, /*required=*/true, rope);
  }
  // What it changes begins behind max_position_embeddings, and no sequence gets there.
  if (*type == "dynamic") return ScalingFactor(scaling, /*required=*/true, rope);
  return scaling.Bad(Code::kUnsupported, key, "is ", Quote(*type),
                     ", which is not supported; known are \"default\", \"linear\", \"dynamic\", "
                     "\"llama3\", \"longrope\" and \"yarn\"");
}

// By how much.
Status ConfigReader::ScalingFactor(const JsonFields& scaling, bool required, RopeConfig* rope) {
  ASSIGN_OR_RETURN(const auto factor, scaling.Number("factor", kFactorRange));
  if (!factor && required) {
    return scaling.Bad(Code::kBadModel, "factor", "is missing, a number from 1 to 1024");
  }
  if (factor && rope->kind != RopeKind::kPlain) rope->factor = *factor;
  return OkStatus();
}

// Of which range: a flat key comes first.
Status ConfigReader::OriginalPositions(const JsonFields& scaling, RopeConfig* rope) {
  constexpr absl::string_view kKey = "original_max_position_embeddings";
  ASSIGN_OR_RETURN(const auto flat, text_.Integer(kKey, kPositionRange));
  ASSIGN_OR_RETURN(const auto own, scaling.Integer(kKey, kPositionRange));
  rope->original_max_position = flat ? *flat : own.value_or(config_.max_position);
  return OkStatus();
}

Status ConfigReader::Llama3(const JsonFields& scaling, RopeConfig* rope) {
  rope->kind = RopeKind::kLlama3;
  RETURN_IF_ERROR(ScalingFactor(scaling, /*required=*/true, rope));
  RETURN_IF_ERROR(OriginalPositions(scaling, rope));
  constexpr NumberRange kTurnsRange = {0, 1e6, true};
  for (const auto& [key, value] : {std::pair("low_freq_factor", &rope->low_freq_factor),
                                   std::pair("high_freq_factor", &rope->high_freq_factor)}) {
    ASSIGN_OR_RETURN(const auto turns, scaling.Number(key, kTurnsRange));
    if (!turns) return scaling.Bad(Code::kBadModel, key, "is missing, a number from 0 to 1e6");
    *value = *turns;
  }
  if (rope->high_freq_factor > rope->low_freq_factor) return OkStatus();
  return scaling.Bad(Code::kBadModel, "high_freq_factor", "is ", rope->high_freq_factor,
                     ", the limit is more than low_freq_factor ", rope->low_freq_factor);
}

Status ConfigReader::Yarn(const JsonFields& scaling, RopeConfig* rope) {
  rope->kind = RopeKind::kYarn;
  RETURN_IF_ERROR(OriginalPositions(scaling, rope));
  rope->factor = std::max(1.0, static_cast<double>(config_.max_position) /
                                   static_cast<double>(rope->original_max_position));
  const bool stretched = rope->factor > 1;
  RETURN_IF_ERROR(ScalingFactor(scaling, /*required=*/!stretched, rope));
  constexpr NumberRange kScaleRange = {0, 100, true};
  ASSIGN_OR_RETURN(const auto attention, scaling.Number("attention_factor", kScaleRange));
  // 0 is as good as none.
  ASSIGN_OR_RETURN(const auto mscale, scaling.Number("mscale", {0, 100}));
  ASSIGN_OR_RETURN(const auto all_dim, scaling.Number("mscale_all_dim", {0, 100}));
  if (attention) {
    rope->attention_factor = *attention;
  } else if (mscale.value_or(0) != 0 && all_dim.value_or(0) != 0) {
    rope->attention_factor = YarnScale(rope->factor, *mscale) / YarnScale(rope->factor, *all_dim);
  } else {
    rope->attention_factor = YarnScale(rope->factor, 1);
  }
  constexpr NumberRange kBetaRange = {0, 1e6};
  ASSIGN_OR_RETURN(const auto fast, scaling.Number("beta_fast", kBetaRange));
  ASSIGN_OR_RETURN(const auto slow, scaling.Number("beta_slow", kBetaRange));
  if (fast.value_or(0) != 0) rope->beta_fast = *fast;
  if (slow.value_or(0) != 0) rope->beta_slow = *slow;
  if (rope->beta_fast < rope->beta_slow) {
    return scaling.Bad(Code::kBadModel, "beta_fast", "is ", rope->beta_fast,
                       ", the limit is not below beta_slow ", rope->beta_slow);
  }
  if (rope->theta <= 1) {
    return text_.Bad(Code::kBadModel, "rope_theta", "is ", rope->theta,
                     ", the limit for yarn is more than 1");
  }
  ASSIGN_OR_RETURN(const auto truncate, scaling.Boolean("truncate"));
  rope->truncate = truncate.value_or(true);
  // What yarn makes of the original range, when max_position_embeddings was left at that.
  const auto reach =
      static_cast<int64_t>(rope->factor * static_cast<double>(rope->original_max_position));
  config_.max_position = std::max(config_.max_position, std::min(reach, kPositionRange.most));
  return OkStatus();
}

// Which of the two lists counts follows from the file alone, so that no token's K depends on how
// long its sequence becomes: the long one, if the model reaches beyond its original range at all.
Status ConfigReader::LongRope(const JsonFields& scaling, RopeConfig* rope) {
  rope->kind = RopeKind::kLongRope;
  RETURN_IF_ERROR(OriginalPositions(scaling, rope));
  const double original = static_cast<double>(rope->original_max_position);
  ASSIGN_OR_RETURN(const auto factor, scaling.Number("factor", {0, 1024, true}));
  const double stretch = factor.value_or(static_cast<double>(config_.max_position) / original);
  ASSIGN_OR_RETURN(const auto attention, scaling.Number("attention_factor", {0, 100, true}));
  if (attention) {
    rope->attention_factor = *attention;
  } else if (stretch > 1 && original > 1) {
    rope->attention_factor = std::sqrt(1 + std::log(stretch) / std::log(original));
  }
  const bool is_long = config_.max_position > rope->original_max_position;
  const size_t half = static_cast<size_t>(rope->rotary_dim) / 2;
  for (const absl::string_view key : {"short_factor", "long_factor"}) {
    ASSIGN_OR_RETURN(const auto list, scaling.Array(key));
    if (!list || list->size() != half) {
      return scaling.Bad(Code::kBadModel, key, "has ", list ? list->size() : 0,
                         " numbers; longrope takes ", half, " for heads that turn in ",
                         rope->rotary_dim);
    }
    const bool counts = is_long == (key == "long_factor");
    size_t index = 0;
    for (const element item : *list) {
      double divisor = 0;
      if (item.get(divisor) != simdjson::SUCCESS || !(divisor >= 1e-3 && divisor <= 1e6)) {
        return scaling.Bad(Code::kBadModel, absl::StrCat(key, "[", index, "]"), "is ", Show(item),
                           ", the limits are 0.001 and 1e6");
      }
      ++index;
      if (counts) rope->divisors.push_back(divisor);
    }
  }
  return OkStatus();
}

}  // namespace mainarch::model
