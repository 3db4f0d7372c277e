// SPDX-License-Identifier: MIT
//
// How a config.json says which layers are gated delta nets, and of what geometry.
#include <algorithm>

#include "backend/ops.h"
#include "model/config_reader.h"

namespace mainarch::model {
namespace {

using file::IntegerRange;
using file::Quote;
using file::Show;
using simdjson::dom::element;

constexpr IntegerRange kHeadRange = {1, 1024};
constexpr IntegerRange kDimRange = {16, 256};
constexpr int32_t kDimUnit = 16;

}  // namespace

Status ConfigReader::Delta() {
  DeltaConfig& delta = config_.delta;
  const struct {
    absl::string_view key;
    IntegerRange range;
    int32_t by_default;
    int32_t* out;
  } fields[] = {{"linear_num_key_heads", kHeadRange, 16, &delta.key_heads},
                {"linear_num_value_heads", kHeadRange, 32, &delta.value_heads},
                {"linear_key_head_dim", kDimRange, 128, &delta.key_dim},
                {"linear_value_head_dim", kDimRange, 128, &delta.value_dim},
                {"linear_conv_kernel_dim", {2, backend::kMostTaps}, 4, &delta.taps}};
  for (const auto& field : fields) {
    ASSIGN_OR_RETURN(const auto value, text_.Integer(field.key, field.range));
    *field.out = static_cast<int32_t>(value.value_or(field.by_default));
    if (field.range.least == kDimUnit && *field.out % kDimUnit != 0) {
      return text_.Bad(Code::kUnsupported, field.key, "is ", *field.out,
                       ", which is not a multiple of ", kDimUnit);
    }
  }
  if (delta.value_heads % delta.key_heads != 0) {
    return text_.Bad(Code::kBadModel, "linear_num_value_heads", "is ", delta.value_heads,
                     ", not a multiple of linear_num_key_heads ", delta.key_heads);
  }
  // What gates a head's output: later families have others.
  ASSIGN_OR_RETURN(const auto gate, text_.String("output_gate_type"));
  if (gate && *gate != "swish" && *gate != "silu") {
    return text_.Bad(Code::kUnsupported, "output_gate_type", "is ", Quote(*gate),
                     ", which is not supported; known is \"swish\"");
  }
  return DeltaLayers();
}

Status ConfigReader::Hybrid() {
  config_.attention.output_gate = true;
  ASSIGN_OR_RETURN(const bool gated, Flag("attn_output_gate", true));
  if (!gated) {
    return text_.Bad(Code::kUnsupported, "attn_output_gate",
                     "is false, which is not supported; it must be true");
  }
  config_.norms.plus_one = true;
  RETURN_IF_ERROR(AttentionBias());
  return Delta();
}

Status ConfigReader::DeltaLayers() {
  const size_t layers = static_cast<size_t>(config_.layers);
  ASSIGN_OR_RETURN(const auto interval, text_.Integer("full_attention_interval", {1, 1024}));
  for (size_t i = 0; i < layers; ++i) {
    config_.delta_layer.push_back((i + 1) % static_cast<size_t>(interval.value_or(4)) != 0);
  }
  ASSIGN_OR_RETURN(const auto types, text_.Array("layer_types"));
  if (!types) return OkStatus();
  if (types->size() != layers) {
    return text_.Bad(Code::kBadModel, "layer_types", "has ", types->size(),
                     " entries, num_hidden_layers is ", layers);
  }
  size_t layer = 0;
  for (const element item : *types) {
    std::string_view name;
    if (item.get(name) != simdjson::SUCCESS) name = {};
    const bool delta = name == "linear_attention" || name == "linear" || name == "mamba";
    if (!delta && name != "full_attention" && name != "attention") {
      return text_.Bad(Code::kUnsupported, absl::StrCat("layer_types[", layer, "]"), "is ",
                       Show(item),
                       ", which is not supported; known are \"full_attention\" and "
                       "\"linear_attention\"");
    }
    config_.delta_layer[layer++] = delta;
  }
  return OkStatus();
}

}  // namespace mainarch::model
