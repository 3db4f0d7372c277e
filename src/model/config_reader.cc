// SPDX-License-Identifier: MIT
#include "model/config_reader.h"

#include <algorithm>
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
                                               "mxfp4", "awq", "gptq"};

template <class T>
Status AssignInteger(const JsonFields& fields, absl::string_view key, IntegerRange range, T* out) {
  ASSIGN_OR_RETURN(const int64_t number, fields.RequiredInteger(key, range));
  *out = static_cast<T>(number);
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

Status ConfigReader::RefuseIfThere(std::initializer_list<absl::string_view> keys) const {
  for (const absl::string_view key : keys) {
    const auto value = text_.Find(key);
    if (!value) continue;
    return text_.Bad(Code::kUnsupported, key, "is ", Show(*value),
                     ", which is not supported; it must be null");
  }
  return OkStatus();
}

Status ConfigReader::Activation(absl::string_view key) {
  ASSIGN_OR_RETURN(const auto act, text_.String(key));
  if (!act || *act == "silu" || *act == "swish") return OkStatus();
  if (*act == "gelu_pytorch_tanh" || *act == "gelu_new") {
    config_.activation = backend::Activation::kGeluTanh;
    return OkStatus();
  }
  return text_.Bad(Code::kUnsupported, key, "is ", Quote(*act),
                   ", which is not supported; known are \"silu\" and \"gelu_pytorch_tanh\"");
}

Status ConfigReader::QuantMethod() const {
  ASSIGN_OR_RETURN(const auto quantization, outer_.Object("quantization_config"));
  if (!quantization) return OkStatus();
  ASSIGN_OR_RETURN(const auto method, quantization->String("quant_method"));
  if (method && std::find(std::begin(kQuantMethods), std::end(kQuantMethods), *method) ==
                    std::end(kQuantMethods)) {
    return quantization->Bad(Code::kUnsupported, "quant_method", "is ", Quote(*method),
                             ", which is not supported; known are fp8, quark, "
                             "compressed-tensors, modelopt, mxfp4, awq and gptq");
  }
  return OkStatus();
}

Status ConfigReader::Common(const Defaults& defaults) {
  defaults_ = defaults;
  RETURN_IF_ERROR(Activation());
  RETURN_IF_ERROR(QuantMethod());
  RETURN_IF_ERROR(Geometry());
  RETURN_IF_ERROR(Heads());
  return TiedEmbeddings();
}

Status ConfigReader::Geometry() {
  RETURN_IF_ERROR(AssignInteger(text_, "hidden_size", kHiddenRange, &config_.hidden));
  RETURN_IF_ERROR(AssignInteger(text_, "num_hidden_layers", kLayerRange, &config_.layers));
  RETURN_IF_ERROR(AssignInteger(text_, "vocab_size", kVocabRange, &config_.vocab));
  if (defaults_.max_position == 0) {
    RETURN_IF_ERROR(
        AssignInteger(text_, "max_position_embeddings", kPositionRange, &config_.max_position));
  } else {
    ASSIGN_OR_RETURN(const auto positions,
                     text_.Integer("max_position_embeddings", kPositionRange));
    config_.max_position = positions.value_or(defaults_.max_position);
  }
  config_.rms_eps = defaults_.rms_eps;
  const bool other = !defaults_.eps_key.empty() && !text_.Find("rms_norm_eps");
  const absl::string_view eps_key = other ? defaults_.eps_key : "rms_norm_eps";
  ASSIGN_OR_RETURN(const auto eps, text_.Number(eps_key, {0, 0.125, true}));
  if (eps) config_.rms_eps = static_cast<float>(*eps);
  if (!(config_.rms_eps > 0)) {
    return text_.Bad(Code::kBadModel, eps_key, "is ", *eps,
                     ", which is 0 in fp32; the limit is ",
                     std::numeric_limits<float>::denorm_min());
  }
  return OkStatus();
}

Status ConfigReader::Heads() {
  RETURN_IF_ERROR(AssignInteger(text_, "num_attention_heads", kHeadRange, &config_.heads));
  ASSIGN_OR_RETURN(const auto kv_heads, text_.Integer("num_key_value_heads", kHeadRange));
  const bool missing = !HasKey("num_key_value_heads");
  config_.kv_heads = static_cast<int32_t>(
      kv_heads.value_or(missing && defaults_.kv_heads != 0 ? defaults_.kv_heads : config_.heads));
  if (config_.heads % config_.kv_heads != 0) {
    return text_.Bad(Code::kBadModel, "num_key_value_heads", "is ", config_.kv_heads,
                     ", which does not divide num_attention_heads ", config_.heads);
  }
  ASSIGN_OR_RETURN(const auto head_dim, text_.Integer("head_dim", kHeadDimRange));
  const bool derived = HasKey("head_dim") || defaults_.head_dim == 0;
  config_.head_dim = static_cast<int32_t>(
      head_dim.value_or(derived ? config_.hidden / config_.heads : defaults_.head_dim));
  if (config_.head_dim < kHeadDimRange.least || config_.head_dim > kHeadDimRange.most ||
      config_.head_dim % 2 != 0) {
    return text_.Bad(Code::kBadModel, "head_dim", "is ", config_.head_dim,
                     head_dim ? "" : " (hidden_size by num_attention_heads)",
                     ", the limits are an even number from ", kHeadDimRange.least, " to ",
                     kHeadDimRange.most);
  }
  return OkStatus();
}

bool ConfigReader::HasKey(absl::string_view key) const {
  for (const auto& member : text_.members()) {
    if (View(member.key) == key) return true;
  }
  return false;
}

StatusOr<bool> ConfigReader::Flag(absl::string_view key, bool by_default) const {
  ASSIGN_OR_RETURN(const auto flag, text_.Boolean(key));
  return flag.value_or(by_default);
}

StatusOr<double> ConfigReader::Factor(absl::string_view key, double by_default) const {
  ASSIGN_OR_RETURN(const auto factor, text_.Number(key, {1e-6, 1e6}));
  return factor.value_or(by_default);
}

StatusOr<int32_t> ConfigReader::Window(int32_t by_default) const {
  if (!HasKey("sliding_window")) return by_default;
  ASSIGN_OR_RETURN(const auto window, text_.Integer("sliding_window", {0, kPositionRange.most}));
  return static_cast<int32_t>(window.value_or(0));
}

void ConfigReader::WindowInAll(int32_t window) {
  if (window == 0) return;
  config_.layer_attention.assign(static_cast<size_t>(config_.layers), {window, 0});
}

Status ConfigReader::QwenWindows() {
  ASSIGN_OR_RETURN(const bool slides, Flag("use_sliding_window", false));
  ASSIGN_OR_RETURN(const int32_t window, Window(4096));
  ASSIGN_OR_RETURN(const auto first, text_.Integer("max_window_layers", {0, kLayerRange.most}));
  std::vector<bool> pattern;
  for (int32_t i = 0; i < config_.layers; ++i) pattern.push_back(slides && i >= first.value_or(28));
  return LayerWindows(slides ? window : 0, pattern);
}

Status ConfigReader::LayerWindows(int32_t window, const std::vector<bool>& by_default) {
  const size_t layers = static_cast<size_t>(config_.layers);
  std::vector<bool> slides = by_default;
  slides.resize(layers);
  ASSIGN_OR_RETURN(const auto types, text_.Array("layer_types"));
  if (types) {
    if (types->size() != layers) {
      return text_.Bad(Code::kBadModel, "layer_types", "has ", types->size(),
                       " entries, num_hidden_layers is ", layers);
    }
    size_t layer = 0;
    for (const element item : *types) {
      const std::string what = absl::StrCat("layer_types[", layer, "]");
      std::string_view name;
      const bool is_string = item.get(name) == simdjson::SUCCESS;
      slides[layer] = is_string && name == "sliding_attention";
      // "attention" is what files of transformers 4 say.
      if (!slides[layer] && (!is_string || (name != "full_attention" && name != "attention"))) {
        return text_.Bad(Code::kUnsupported, what, "is ", Show(item),
                         ", which is not supported; known are \"full_attention\" and "
                         "\"sliding_attention\"");
      }
      if (slides[layer] && window == 0) {
        return text_.Bad(Code::kBadModel, what,
                         "is \"sliding_attention\", but sliding_window says "
                         "that there is none");
      }
      ++layer;
    }
  }
  if (window == 0 || std::find(slides.begin(), slides.end(), true) == slides.end()) {
    return OkStatus();
  }
  config_.layer_attention.resize(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    config_.layer_attention[layer].window = slides[layer] ? window : 0;
  }
  return OkStatus();
}

StatusOr<std::vector<bool>> ConfigReader::LayerFlags(absl::string_view key) const {
  std::vector<bool> flags;
  ASSIGN_OR_RETURN(const auto list, text_.Array(key));
  if (!list) return flags;
  if (list->size() != static_cast<size_t>(config_.layers)) {
    return text_.Bad(Code::kBadModel, key, "has ", list->size(), " entries, num_hidden_layers is ", config_.layers);
  }
  for (const element item : *list) {
    ASSIGN_OR_RETURN(const int64_t flag, text_.IntegerOf(item, absl::StrCat(key, "[", flags.size(), "]"), {0, 1}));
    flags.push_back(flag == 1);
  }
  return flags;
}

Status ConfigReader::SparseLayers(absl::string_view types, absl::string_view flags) {
  const size_t layers = static_cast<size_t>(config_.layers);
  ASSIGN_OR_RETURN(const auto names, text_.Array(types));
  if (!names) {
    ASSIGN_OR_RETURN(std::vector<bool> sparse, LayerFlags(flags));
    if (!sparse.empty()) config_.sparse_layer = std::move(sparse);
    return DenseWidth();
  }
  if (names->size() != layers) {
    return text_.Bad(Code::kBadModel, types, "has ", names->size(), " entries, num_hidden_layers is ", config_.layers);
  }
  size_t layer = 0;
  for (const element item : *names) {
    std::string_view name;
    if (item.get(name) != simdjson::SUCCESS || (name != "dense" && name != "sparse")) {
      return text_.Bad(Code::kUnsupported, absl::StrCat(types, "[", layer, "]"), "is ", Show(item),
                       ", which is not supported; known are \"dense\" and \"sparse\"");
    }
    config_.sparse_layer[layer++] = name == "sparse";
  }
  return DenseWidth();
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
  config_.tied_embeddings = tied.value_or(defaults_.tied);
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

Status ConfigReader::LocalExperts() {
  config_.sparse_layer.assign(static_cast<size_t>(config_.layers), true);
  RETURN_IF_ERROR(
      AssignInteger(text_, "num_local_experts", {1, kExpertRange.most}, &config_.experts));
  RETURN_IF_ERROR(AssignInteger(text_, "num_experts_per_tok", {1, config_.experts},
                                &config_.experts_per_token));
  return AssignInteger(text_, "intermediate_size", kWidthRange, &config_.moe_intermediate);
}

Status ConfigReader::RoutedExperts(const Routed& by_default) {
  RETURN_IF_ERROR(
      AssignInteger(text_, "n_routed_experts", {1, kExpertRange.most}, &config_.experts));
  RETURN_IF_ERROR(AssignInteger(text_, "num_experts_per_tok", {1, config_.experts},
                                &config_.experts_per_token));
  RETURN_IF_ERROR(
      AssignInteger(text_, "moe_intermediate_size", kWidthRange, &config_.moe_intermediate));
  ASSIGN_OR_RETURN(const auto dense, text_.Integer("first_k_dense_replace", {0, config_.layers}));
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    config_.sparse_layer.push_back(layer >= dense.value_or(by_default.dense));
  }
  ASSIGN_OR_RETURN(const auto shared, text_.Integer("n_shared_experts", {0, 64}));
  config_.shared_intermediate = static_cast<int32_t>(shared.value_or(by_default.shared)) * config_.moe_intermediate;
  RouterConfig& router = config_.router;
  ASSIGN_OR_RETURN(const auto groups, text_.Integer("n_group", {1, config_.experts}));
  router.groups = static_cast<int32_t>(groups.value_or(by_default.groups));
  if (config_.experts % router.groups != 0 || config_.experts / router.groups < 2) {
    return text_.Bad(Code::kBadModel, "n_group", "is ", router.groups, ", but groups of ",
                     config_.experts, " experts must be equally large, two or more");
  }
  ASSIGN_OR_RETURN(const auto chosen, text_.Integer("topk_group", {1, router.groups}));
  router.chosen_groups = static_cast<int32_t>(chosen.value_or(by_default.chosen_groups));
  if (config_.experts / router.groups * router.chosen_groups < config_.experts_per_token) {
    return text_.Bad(Code::kBadModel, "topk_group", "is ", router.chosen_groups, ", which leaves ",
                     config_.experts / router.groups * router.chosen_groups,
                     " experts to choose from; num_experts_per_tok is ", config_.experts_per_token);
  }
  ASSIGN_OR_RETURN(router.scale, Factor("routed_scaling_factor", by_default.scale));
  ASSIGN_OR_RETURN(config_.norm_topk_prob, Flag("norm_topk_prob", true));
  return DenseWidth();
}

Status ConfigReader::SharedExpert(int32_t width_by_default) {
  if (config_.experts == 0) return OkStatus();
  ASSIGN_OR_RETURN(const auto width, text_.Integer("shared_expert_intermediate_size", kWidthRange));
  config_.shared_intermediate = static_cast<int32_t>(width.value_or(width_by_default));
  config_.shared_gate = true;
  return OkStatus();
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

}  // namespace mainarch::model
