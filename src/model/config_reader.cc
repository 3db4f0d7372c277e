// SPDX-License-Identifier: MIT
#include "model/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mainarch::model {
namespace {

using file::IntegerRange;
using file::JsonFields;
using file::Quote;
using file::Show;
using file::View;
using simdjson::dom::element;

// Ten times what the largest released model has, or more; small enough that no product of a few of
// them overflows 64 bits.
constexpr IntegerRange kHiddenRange = {1, 1 << 16};
constexpr IntegerRange kWidthRange = {1, 1 << 20};
constexpr IntegerRange kLayerRange = {1, 1024};
constexpr IntegerRange kHeadRange = {1, 1024};
constexpr IntegerRange kHeadDimRange = {2, 1024};
constexpr IntegerRange kVocabRange = {1, 1 << 24};
constexpr IntegerRange kPositionRange = {1, int64_t{1} << 28};
constexpr IntegerRange kExpertRange = {0, 4096};

// Formats that linear.h can read or refuse by name. With any other, the tensors carry other names.
constexpr absl::string_view kQuantMethods[] = {"fp8", "quark", "compressed-tensors", "modelopt",
                                               "mxfp4"};

template <class T>
Status AssignInteger(const JsonFields& fields, absl::string_view key, IntegerRange range, T* out) {
  ASSIGN_OR_RETURN(const int64_t number, fields.RequiredInteger(key, range));
  *out = static_cast<T>(number);
  return OkStatus();
}

// A key that is not known here would change the angles without a word.
Status CheckRopeKeys(const JsonFields& scaling) {
  constexpr absl::string_view kKeys[] = {"rope_type",        "type",
                                         "rope_theta",       "partial_rotary_factor",
                                         "mrope_section",    "mrope_interleaved",
                                         "factor",           "original_max_position_embeddings",
                                         "attention_factor", "beta_fast",
                                         "beta_slow",        "truncate",
                                         "low_freq_factor",  "high_freq_factor"};
  for (const auto& member : scaling.members()) {
    if (member.value.is_null()) continue;
    if (std::find(std::begin(kKeys), std::end(kKeys), View(member.key)) == std::end(kKeys)) {
      return scaling.Bad(Code::kUnsupported, Quote(View(member.key)), "is ", Show(member.value),
                         ", a key that is not supported");
    }
  }
  return OkStatus();
}

}  // namespace

Status ConfigReader::RefuseIfTrue(std::initializer_list<absl::string_view> keys) const {
  for (const absl::string_view key : keys) {
    ASSIGN_OR_RETURN(const std::optional<bool> flag, text_.Boolean(key));
    if (flag.value_or(false)) {
      return text_.Bad(Code::kUnsupported, key, "is true, which is not supported; it must be false");
    }
  }
  return OkStatus();
}

Status ConfigReader::Activation(absl::string_view wanted) const {
  ASSIGN_OR_RETURN(const auto act, text_.String("hidden_act"));
  if (act && *act != wanted) {
    return text_.Bad(Code::kUnsupported, "hidden_act", "is ", Quote(*act),
                     ", which is not supported; it must be \"", wanted, "\"");
  }
  return OkStatus();
}

Status ConfigReader::QuantMethod() const {
  ASSIGN_OR_RETURN(const auto quantization, outer_.Object("quantization_config"));
  if (!quantization) return OkStatus();
  ASSIGN_OR_RETURN(const auto method, quantization->String("quant_method"));
  if (method && std::find(std::begin(kQuantMethods), std::end(kQuantMethods), *method) ==
                    std::end(kQuantMethods)) {
    return quantization->Bad(Code::kUnsupported, "quant_method", "is ", Quote(*method),
                             ", which is not supported; known are fp8, quark, "
                             "compressed-tensors, modelopt and mxfp4");
  }
  return OkStatus();
}

Status ConfigReader::Geometry() {
  RETURN_IF_ERROR(AssignInteger(text_, "hidden_size", kHiddenRange, &config_.hidden));
  RETURN_IF_ERROR(AssignInteger(text_, "num_hidden_layers", kLayerRange, &config_.layers));
  RETURN_IF_ERROR(AssignInteger(text_, "vocab_size", kVocabRange, &config_.vocab));
  RETURN_IF_ERROR(
      AssignInteger(text_, "max_position_embeddings", kPositionRange, &config_.max_position));
  ASSIGN_OR_RETURN(const auto eps, text_.Number("rms_norm_eps", {0, 0.125, true}));
  if (eps) config_.rms_eps = static_cast<float>(*eps);
  if (!(config_.rms_eps > 0)) {
    return text_.Bad(Code::kBadModel, "rms_norm_eps", "is ", *eps,
                     ", which is 0 in fp32; the limit is ",
                     std::numeric_limits<float>::denorm_min());
  }
  return OkStatus();
}

Status ConfigReader::Heads() {
  RETURN_IF_ERROR(AssignInteger(text_, "num_attention_heads", kHeadRange, &config_.heads));
  RETURN_IF_ERROR(AssignInteger(text_, "num_key_value_heads", kHeadRange, &config_.kv_heads));
  if (config_.heads % config_.kv_heads != 0) {
    return text_.Bad(Code::kBadModel, "num_key_value_heads", "is ", config_.kv_heads,
                     ", which does not divide num_attention_heads ", config_.heads);
  }
  ASSIGN_OR_RETURN(const auto head_dim, text_.Integer("head_dim", kHeadDimRange));
  if (head_dim) {
    config_.head_dim = static_cast<int32_t>(*head_dim);
  } else if (config_.hidden % config_.heads == 0) {
    config_.head_dim = config_.hidden / config_.heads;
  } else {
    return text_.Bad(Code::kBadModel, "head_dim", "is missing, and num_attention_heads ",
                     config_.heads, " does not divide hidden_size ", config_.hidden);
  }
  if (config_.head_dim < kHeadDimRange.least || config_.head_dim > kHeadDimRange.most ||
      config_.head_dim % 2 != 0) {
    return text_.Bad(Code::kBadModel, "head_dim", "is ", config_.head_dim,
                     ", the limits are an even number from ", kHeadDimRange.least, " to ",
                     kHeadDimRange.most);
  }
  return OkStatus();
}

Status ConfigReader::LayerTypes() const {
  ASSIGN_OR_RETURN(const auto types, text_.Array("layer_types"));
  if (!types) return OkStatus();
  int32_t count = 0;
  for (const element item : *types) {
    std::string_view name;
    // "attention" is what files of transformers 4 say.
    if (item.get(name) != simdjson::SUCCESS ||
        (name != "full_attention" && name != "attention")) {
      return text_.Bad(Code::kUnsupported, absl::StrCat("layer_types[", count, "]"), "is ",
                       Show(item), ", which is not supported; it must be \"full_attention\"");
    }
    ++count;
  }
  if (count != config_.layers) {
    return text_.Bad(Code::kBadModel, "layer_types", "has ", count,
                     " entries, num_hidden_layers is ", config_.layers);
  }
  return OkStatus();
}

Status ConfigReader::AttentionBias() {
  ASSIGN_OR_RETURN(const auto bias, text_.Boolean("attention_bias"));
  config_.attention.qkv_bias = config_.attention.o_bias = bias.value_or(false);
  return OkStatus();
}

Status ConfigReader::TiedEmbeddings() {
  ASSIGN_OR_RETURN(auto tied, text_.Boolean("tie_word_embeddings"));
  if (!tied) {
    ASSIGN_OR_RETURN(tied, outer_.Boolean("tie_word_embeddings"));
  }
  config_.tied_embeddings = tied.value_or(false);
  return OkStatus();
}

Status ConfigReader::NoExperts() {
  config_.sparse_layer.assign(static_cast<size_t>(config_.layers), false);
  if (text_.Find("num_experts")) {
    ASSIGN_OR_RETURN(const auto experts, text_.Integer("num_experts", kExpertRange));
    if (*experts != 0) {
      return text_.Bad(Code::kBadModel, "num_experts", "is ", *experts, ", but model_type ",
                       config_.model_type, " has none; the limit is 0");
    }
  }
  return DenseWidth();
}

Status ConfigReader::Experts() {
  config_.sparse_layer.assign(static_cast<size_t>(config_.layers), false);
  const absl::string_view key = text_.Find("num_experts") ? "num_experts" : "num_local_experts";
  if (!text_.Find(key)) return text_.RequiredInteger("num_experts", kExpertRange).status();
  RETURN_IF_ERROR(AssignInteger(text_, key, kExpertRange, &config_.experts));
  if (config_.experts > 0) RETURN_IF_ERROR(Routing());
  return DenseWidth();
}

// Wanted where any layer is dense.
Status ConfigReader::DenseWidth() {
  const bool all_sparse = std::find(config_.sparse_layer.begin(), config_.sparse_layer.end(),
                                    false) == config_.sparse_layer.end();
  if (!all_sparse || text_.Find("intermediate_size")) {
    RETURN_IF_ERROR(AssignInteger(text_, "intermediate_size", kWidthRange, &config_.intermediate));
  }
  return OkStatus();
}

Status ConfigReader::Routing() {
  RETURN_IF_ERROR(AssignInteger(text_, "num_experts_per_tok", {1, config_.experts},
                                &config_.experts_per_token));
  RETURN_IF_ERROR(
      AssignInteger(text_, "moe_intermediate_size", kWidthRange, &config_.moe_intermediate));
  ASSIGN_OR_RETURN(const auto norm, text_.Boolean("norm_topk_prob"));
  config_.norm_topk_prob = norm.value_or(false);
  ASSIGN_OR_RETURN(const auto step, text_.Integer("decoder_sparse_step", kLayerRange));
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    config_.sparse_layer[static_cast<size_t>(layer)] = (layer + 1) % step.value_or(1) == 0;
  }
  ASSIGN_OR_RETURN(const auto dense, text_.Array("mlp_only_layers"));
  if (!dense) return OkStatus();
  size_t index = 0;
  for (const element item : *dense) {
    const std::string what = absl::StrCat("mlp_only_layers[", index++, "]");
    ASSIGN_OR_RETURN(const int64_t layer, text_.IntegerOf(item, what, {0, config_.layers - 1}));
    config_.sparse_layer[static_cast<size_t>(layer)] = false;
  }
  return OkStatus();
}

// rope_parameters (transformers 5), else rope_scaling; flat keys fill what those lack.
Status ConfigReader::Rope() {
  ASSIGN_OR_RETURN(auto scaling, text_.Object("rope_parameters"));
  if (!scaling) {
    ASSIGN_OR_RETURN(scaling, text_.Object("rope_scaling"));
  }
  constexpr file::NumberRange kThetaRange = {1, 1e12};
  constexpr file::NumberRange kPartialRange = {0, 1, true};
  std::optional<double> theta, partial;
  if (scaling) {
    RETURN_IF_ERROR(CheckRopeKeys(*scaling));
    ASSIGN_OR_RETURN(theta, scaling->Number("rope_theta", kThetaRange));
    ASSIGN_OR_RETURN(partial, scaling->Number("partial_rotary_factor", kPartialRange));
  }
  ASSIGN_OR_RETURN(const auto flat_theta, text_.Number("rope_theta", kThetaRange));
  ASSIGN_OR_RETURN(const auto flat_partial, text_.Number("partial_rotary_factor", kPartialRange));
  RopeConfig& rope = config_.rope;
  rope.theta = theta ? *theta : flat_theta.value_or(rope.theta);
  const double share = partial ? *partial : flat_partial.value_or(1);
  rope.rotary_dim = static_cast<int32_t>(config_.head_dim * share);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    return text_.Bad(Code::kBadModel, "partial_rotary_factor", "is ", share, ", which rotates ",
                     rope.rotary_dim, " of head_dim ", config_.head_dim,
                     "; the limits are an even number from 2 up");
  }
  return scaling ? RopeType(*scaling) : OkStatus();
}

Status ConfigReader::RopeType(const JsonFields& scaling) {
  const absl::string_view key = scaling.Find("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const auto type, scaling.String(key));
  if (!type || *type == "default") return OkStatus();
  if (*type == "yarn") return Yarn(scaling);
  if (*type == "llama3") return Llama3(scaling);
  return scaling.Bad(Code::kUnsupported, key, "is ", Quote(*type),
                     ", which is not supported; known are \"default\", \"llama3\" and \"yarn\"");
}

// What every scaling has: by how much, and of which range.
Status ConfigReader::Factor(const JsonFields& scaling) {
  RopeConfig& rope = config_.rope;
  ASSIGN_OR_RETURN(const auto factor, scaling.Number("factor", {1, 1024}));
  if (!factor) {
    return scaling.Bad(Code::kBadModel, "factor", "is missing, a number from 1 to 1024");
  }
  rope.factor = *factor;
  ASSIGN_OR_RETURN(const auto original,
                   scaling.Integer("original_max_position_embeddings", kPositionRange));
  rope.original_max_position = original.value_or(config_.max_position);
  return OkStatus();
}

Status ConfigReader::Llama3(const JsonFields& scaling) {
  RopeConfig& rope = config_.rope;
  rope.llama3 = true;
  RETURN_IF_ERROR(Factor(scaling));
  constexpr file::NumberRange kTurnsRange = {0, 1e6, true};
  for (const auto& [key, value] : {std::pair("low_freq_factor", &rope.low_freq_factor),
                                   std::pair("high_freq_factor", &rope.high_freq_factor)}) {
    ASSIGN_OR_RETURN(const auto turns, scaling.Number(key, kTurnsRange));
    if (!turns) return scaling.Bad(Code::kBadModel, key, "is missing, a number from 0 to 1e6");
    *value = *turns;
  }
  if (rope.high_freq_factor > rope.low_freq_factor) return OkStatus();
  return scaling.Bad(Code::kBadModel, "high_freq_factor", "is ", rope.high_freq_factor,
                     ", the limit is more than low_freq_factor ", rope.low_freq_factor);
}

Status ConfigReader::Yarn(const JsonFields& scaling) {
  RopeConfig& rope = config_.rope;
  rope.yarn = true;
  RETURN_IF_ERROR(Factor(scaling));
  ASSIGN_OR_RETURN(const auto attention, scaling.Number("attention_factor", {0, 100, true}));
  rope.attention_factor = attention ? *attention : 0.1 * std::log(rope.factor) + 1;
  constexpr file::NumberRange kBetaRange = {0, 1e6, true};
  ASSIGN_OR_RETURN(const auto fast, scaling.Number("beta_fast", kBetaRange));
  ASSIGN_OR_RETURN(const auto slow, scaling.Number("beta_slow", kBetaRange));
  rope.beta_fast = fast.value_or(rope.beta_fast);
  rope.beta_slow = slow.value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow) {
    return scaling.Bad(Code::kBadModel, "beta_fast", "is ", rope.beta_fast,
                       ", the limit is not below beta_slow ", rope.beta_slow);
  }
  if (rope.theta <= 1) {
    return text_.Bad(Code::kBadModel, "rope_theta", "is ", rope.theta,
                     ", the limit for yarn is more than 1");
  }
  ASSIGN_OR_RETURN(const auto truncate, scaling.Boolean("truncate"));
  rope.truncate = truncate.value_or(true);
  // What yarn makes of the original range, when max_position_embeddings was left at that.
  const auto reach =
      static_cast<int64_t>(rope.factor * static_cast<double>(rope.original_max_position));
  config_.max_position = std::max(config_.max_position, std::min(reach, kPositionRange.most));
  return OkStatus();
}

}  // namespace mainarch::model
