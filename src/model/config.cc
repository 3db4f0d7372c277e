// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "file/json_fields.h"
#include "model/arch/arch.h"
#include "model/config_reader.h"

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

constexpr size_t kMaxEosIds = 64;
constexpr size_t kMaxBytes = size_t{4} << 20;

// The text model's type decides; a wrapper around it puts other names before the tensors, so its
// own type and class have to be known too.
StatusOr<const Arch*> ReadArch(const JsonFields& outer, const JsonFields& text) {
  const Arch* arch = nullptr;
  for (const JsonFields* fields : {&outer, &text}) {
    ASSIGN_OR_RETURN(const auto type, fields->String("model_type"));
    if (!type) continue;
    arch = FindArch(*type);
    if (arch == nullptr) {
      return fields->Bad(Code::kUnsupported, "model_type", "is ", Quote(*type),
                         ", an architecture that is not supported; known are ", ArchNames());
    }
  }
  if (arch == nullptr) {
    return text.Bad(Code::kBadModel, "model_type", "is missing; known are ", ArchNames());
  }
  ASSIGN_OR_RETURN(const auto classes, outer.Array("architectures"));
  if (!classes || classes->size() == 0) return arch;
  const element first = classes->at(0).value_unsafe();
  std::string_view name;
  if (first.get(name) == simdjson::SUCCESS) {
    if (View(name) == arch->class_name) return arch;
    for (const absl::string_view other : arch->other_classes) {
      if (!other.empty() && View(name) == other) return arch;
    }
  }
  return outer.Bad(Code::kUnsupported, "architectures[0]", "is ", Show(first),
                   ", which is not supported; for model_type ", arch->model_type, " it must be \"",
                   arch->class_name, "\"");
}

// eos_token_id: an integer or an array of them. What is beyond the vocabulary never comes, so that
// transformers takes it, too.
Status AddEosIds(const JsonFields& fields, int32_t vocab, std::vector<uint32_t>* ids) {
  const auto value = fields.Find("eos_token_id");
  if (!value) return OkStatus();
  constexpr IntegerRange kRange = {-1, std::numeric_limits<uint32_t>::max()};
  const auto add = [&](int64_t id) {
    if (id >= 0 && id < vocab) ids->push_back(static_cast<uint32_t>(id));
  };
  array items;
  if (value->get(items) != simdjson::SUCCESS) {
    ASSIGN_OR_RETURN(const int64_t id, fields.IntegerOf(*value, "eos_token_id", kRange));
    add(id);
    return OkStatus();
  }
  size_t index = 0;
  for (const element item : items) {
    if (index == kMaxEosIds) {
      return fields.Bad(Code::kBadModel, "eos_token_id", "has more than the limit of ", kMaxEosIds,
                        " ids");
    }
    const std::string what = absl::StrCat("eos_token_id[", index++, "]");
    ASSIGN_OR_RETURN(const int64_t id, fields.IntegerOf(item, what, kRange));
    add(id);
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

double ModelConfig::AttentionScale() const {
  return attention.scale != 0 ? attention.scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

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
  ASSIGN_OR_RETURN(const Arch* arch, ReadArch(outer, text));
  ModelConfig config;
  config.model_type = std::string(arch->model_type);
  ConfigReader reader(outer, text, config);
  RETURN_IF_ERROR(arch->read(reader));
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
