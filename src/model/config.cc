// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "file/json_fields.h"

namespace mainarch::model {
namespace {

using file::IntegerRange;
using file::JsonDocument;
using file::JsonFields;
using file::Quote;
using file::Show;
using file::View;
using simdjson::dom::array;
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
constexpr size_t kMaxEosIds = 64;
constexpr size_t kMaxBytes = size_t{4} << 20;

struct Architecture {
  absl::string_view model_type;
  absl::string_view class_name;
  bool moe;
};
constexpr Architecture kArchitectures[] = {
    {"qwen3", "Qwen3ForCausalLM", false},
    {"qwen3_moe", "Qwen3MoeForCausalLM", true},
};
constexpr absl::string_view kKnown = "known are qwen3 and qwen3_moe";

// Formats that linear.h can read or refuse by name. With any other, the tensors carry other names.
constexpr absl::string_view kQuantMethods[] = {"fp8", "quark", "compressed-tensors", "modelopt",
                                               "mxfp4"};

const Architecture* FindArchitecture(absl::string_view model_type) {
  for (const Architecture& known : kArchitectures) {
    if (known.model_type == model_type) return &known;
  }
  return nullptr;
}

template <class T>
Status AssignInteger(const JsonFields& fields, absl::string_view key, IntegerRange range, T* out) {
  ASSIGN_OR_RETURN(const int64_t number, fields.RequiredInteger(key, range));
  *out = static_cast<T>(number);
  return OkStatus();
}

// A boolean feature that must be off.
Status RefuseIfTrue(const JsonFields& fields, absl::string_view key) {
  ASSIGN_OR_RETURN(const std::optional<bool> flag, fields.Boolean(key));
  if (flag.value_or(false)) {
    return fields.Bad(Code::kUnsupported, key, "is true, which is not supported; it must be false");
  }
  return OkStatus();
}

// config.json: the outer object, and the one that describes the text model (the same when flat).
class ConfigReader {
 public:
  ConfigReader(const JsonFields& outer, const JsonFields& text) : outer_(outer), text_(text) {}

  StatusOr<ModelConfig> Run() {
    RETURN_IF_ERROR(ReadArchitecture());
    RETURN_IF_ERROR(RefuseFeatures());
    RETURN_IF_ERROR(ReadGeometry());
    RETURN_IF_ERROR(ReadHeads());
    RETURN_IF_ERROR(ReadLayerTypes());
    RETURN_IF_ERROR(ReadTied());
    RETURN_IF_ERROR(ReadExperts());
    RETURN_IF_ERROR(ReadRope());
    return std::move(config_);
  }

 private:
  // The text model's type decides; a wrapper around it puts other names before the tensors, so its
  // own type and class have to be known too.
  Status ReadArchitecture() {
    for (const JsonFields* fields : {&outer_, &text_}) {
      ASSIGN_OR_RETURN(const auto type, fields->String("model_type"));
      if (!type) continue;
      architecture_ = FindArchitecture(*type);
      if (architecture_ == nullptr) {
        return fields->Bad(Code::kUnsupported, "model_type", "is ", Quote(*type),
                           ", an architecture that is not supported; ", kKnown);
      }
    }
    if (architecture_ == nullptr) {
      return text_.Bad(Code::kBadModel, "model_type", "is missing; ", kKnown);
    }
    config_.model_type = std::string(architecture_->model_type);
    ASSIGN_OR_RETURN(const auto classes, outer_.Array("architectures"));
    if (!classes || classes->size() == 0) return OkStatus();
    const element first = classes->at(0).value_unsafe();
    std::string_view name;
    if (first.get(name) != simdjson::SUCCESS || View(name) != architecture_->class_name) {
      return outer_.Bad(Code::kUnsupported, "architectures[0]", "is ", Show(first),
                        ", which is not supported; for model_type ", architecture_->model_type,
                        " it must be \"", architecture_->class_name, "\"");
    }
    return OkStatus();
  }

  Status RefuseFeatures() const {
    for (const absl::string_view key :
         {"attention_bias", "mlp_bias", "use_sliding_window", "attn_output_gate"}) {
      RETURN_IF_ERROR(RefuseIfTrue(text_, key));
    }
    ASSIGN_OR_RETURN(const auto act, text_.String("hidden_act"));
    if (act && *act != "silu") {
      return text_.Bad(Code::kUnsupported, "hidden_act", "is ", Quote(*act),
                       ", which is not supported; it must be \"silu\"");
    }
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

  Status ReadGeometry() {
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

  Status ReadHeads() {
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

  Status ReadLayerTypes() const {
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

  Status ReadTied() {
    ASSIGN_OR_RETURN(auto tied, text_.Boolean("tie_word_embeddings"));
    if (!tied) {
      ASSIGN_OR_RETURN(tied, outer_.Boolean("tie_word_embeddings"));
    }
    config_.tied_embeddings = tied.value_or(false);
    return OkStatus();
  }

  Status ReadExperts() {
    config_.sparse_layer.assign(static_cast<size_t>(config_.layers), false);
    if (architecture_->moe) {
      const absl::string_view key = text_.Find("num_experts") ? "num_experts" : "num_local_experts";
      if (!text_.Find(key)) return text_.RequiredInteger("num_experts", kExpertRange).status();
      RETURN_IF_ERROR(AssignInteger(text_, key, kExpertRange, &config_.experts));
    } else if (text_.Find("num_experts")) {
      ASSIGN_OR_RETURN(const auto experts, text_.Integer("num_experts", kExpertRange));
      if (*experts != 0) {
        return text_.Bad(Code::kBadModel, "num_experts", "is ", *experts, ", but model_type ",
                         config_.model_type, " has none; the limit is 0");
      }
    }
    if (config_.experts > 0) RETURN_IF_ERROR(ReadRouting());
    const bool all_sparse = std::find(config_.sparse_layer.begin(), config_.sparse_layer.end(),
                                      false) == config_.sparse_layer.end();
    if (!all_sparse || text_.Find("intermediate_size")) {
      RETURN_IF_ERROR(
          AssignInteger(text_, "intermediate_size", kWidthRange, &config_.intermediate));
    }
    return OkStatus();
  }

  Status ReadRouting() {
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
  Status ReadRope() {
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
    return scaling ? ReadRopeType(*scaling) : OkStatus();
  }

  // A key that is not known here would change the angles without a word.
  static Status CheckRopeKeys(const JsonFields& scaling) {
    constexpr absl::string_view kKeys[] = {"rope_type",        "type",
                                           "rope_theta",       "partial_rotary_factor",
                                           "mrope_section",    "mrope_interleaved",
                                           "factor",           "original_max_position_embeddings",
                                           "attention_factor", "beta_fast",
                                           "beta_slow",        "truncate"};
    for (const auto& member : scaling.members()) {
      if (member.value.is_null()) continue;
      if (std::find(std::begin(kKeys), std::end(kKeys), View(member.key)) == std::end(kKeys)) {
        return scaling.Bad(Code::kUnsupported, Quote(View(member.key)), "is ", Show(member.value),
                           ", a key that is not supported");
      }
    }
    return OkStatus();
  }

  Status ReadRopeType(const JsonFields& scaling) {
    const absl::string_view key = scaling.Find("rope_type") ? "rope_type" : "type";
    ASSIGN_OR_RETURN(const auto type, scaling.String(key));
    if (!type || *type == "default") return OkStatus();
    if (*type != "yarn") {
      return scaling.Bad(Code::kUnsupported, key, "is ", Quote(*type),
                         ", which is not supported; known are \"default\" and \"yarn\"");
    }
    return ReadYarn(scaling);
  }

  Status ReadYarn(const JsonFields& scaling) {
    RopeConfig& rope = config_.rope;
    rope.yarn = true;
    ASSIGN_OR_RETURN(const auto factor, scaling.Number("factor", {1, 1024}));
    if (!factor) {
      return scaling.Bad(Code::kBadModel, "factor", "is missing, a number from 1 to 1024");
    }
    rope.factor = *factor;
    ASSIGN_OR_RETURN(const auto original,
                     scaling.Integer("original_max_position_embeddings", kPositionRange));
    rope.original_max_position = original.value_or(config_.max_position);
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

  const JsonFields& outer_;
  const JsonFields& text_;
  const Architecture* architecture_ = nullptr;
  ModelConfig config_;
};

// eos_token_id: an integer or an array of them.
Status AddEosIds(const JsonFields& fields, int32_t vocab, std::vector<uint32_t>* ids) {
  const auto value = fields.Find("eos_token_id");
  if (!value) return OkStatus();
  const IntegerRange range = {0, vocab - 1};
  array items;
  if (value->get(items) != simdjson::SUCCESS) {
    ASSIGN_OR_RETURN(const int64_t id, fields.IntegerOf(*value, "eos_token_id", range));
    ids->push_back(static_cast<uint32_t>(id));
    return OkStatus();
  }
  size_t index = 0;
  for (const element item : items) {
    if (index == kMaxEosIds) {
      return fields.Bad(Code::kBadModel, "eos_token_id", "has more than the limit of ", kMaxEosIds,
                        " ids");
    }
    const std::string what = absl::StrCat("eos_token_id[", index++, "]");
    ASSIGN_OR_RETURN(const int64_t id, fields.IntegerOf(item, what, range));
    ids->push_back(static_cast<uint32_t>(id));
  }
  return OkStatus();
}

// The limits are powers of two, so that no value within them leaves them, or becomes 0 (which means
// off), when it is rounded to fp32.
Status ReadGeneration(const JsonFields& fields, ModelConfig* config) {
  ASSIGN_OR_RETURN(const auto sample, fields.Boolean("do_sample"));
  ASSIGN_OR_RETURN(const auto temperature, fields.Number("temperature", {0, 100}));
  ASSIGN_OR_RETURN(const auto top_p, fields.Number("top_p", {0x1p-20, 1}));
  ASSIGN_OR_RETURN(const auto top_k, fields.Integer("top_k", {0, 1 << 24}));
  ASSIGN_OR_RETURN(const auto min_p, fields.Number("min_p", {0, 1}));
  ASSIGN_OR_RETURN(const auto penalty, fields.Number("repetition_penalty", {0x1p-10, 128}));
  // Sampling without a temperature is sampling at 1.
  const double when_absent = sample.value_or(false) ? 1 : 0;
  config->temperature =
      sample.value_or(true) ? static_cast<float>(temperature.value_or(when_absent)) : 0;
  config->top_p = static_cast<float>(top_p.value_or(0));
  config->top_k = static_cast<uint32_t>(top_k.value_or(0));
  config->min_p = static_cast<float>(min_p.value_or(0));
  config->repetition_penalty = static_cast<float>(penalty.value_or(1));
  return AddEosIds(fields, config->vocab, &config->eos_ids);
}

}  // namespace

StatusOr<ModelConfig> ParseConfig(absl::string_view config_json,
                                  absl::string_view generation_config_json,
                                  absl::string_view directory) {
  const std::string file = absl::StrCat(directory, "/config.json");
  ASSIGN_OR_RETURN(const JsonDocument document,
                   JsonDocument::Parse(config_json, file, {kMaxBytes}));
  ASSIGN_OR_RETURN(const auto members, document.RootObject());
  const JsonFields outer(file, "", members);
  ASSIGN_OR_RETURN(const auto nested, outer.Object("text_config"));
  const JsonFields& text = nested ? *nested : outer;
  ASSIGN_OR_RETURN(ModelConfig config, ConfigReader(outer, text).Run());
  RETURN_IF_ERROR(AddEosIds(text, config.vocab, &config.eos_ids));
  if (!generation_config_json.empty()) {
    const std::string generation_file = absl::StrCat(directory, "/generation_config.json");
    ASSIGN_OR_RETURN(const JsonDocument generation,
                     JsonDocument::Parse(generation_config_json, generation_file, {kMaxBytes}));
    ASSIGN_OR_RETURN(const auto fields, generation.RootObject());
    RETURN_IF_ERROR(ReadGeneration(JsonFields(generation_file, "", fields), &config));
  }
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()),
                       config.eos_ids.end());
  return config;
}

}  // namespace mainarch::model
