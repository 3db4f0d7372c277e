// SPDX-License-Identifier: MIT
#include "model/pooling.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/fd.h"
#include "file/json.h"
#include "file/json_fields.h"

namespace mainarch::model {
namespace {

using file::JsonDocument;
using file::JsonFields;

constexpr file::JsonLimits kLimits;
constexpr size_t kMaxPrompts = 1024;

// Empty when there is no such file.
StatusOr<std::string> ReadIfThere(const std::string& path) {
  StatusOr<std::string> text = ReadWholeFile(path, kLimits.bytes);
  if (!text.ok() && CodeOf(text.status()) == Code::kNotFound) return std::string();
  return text;
}

// Of "sentence_transformers.models.Pooling" the last name, which is all that versions agree on.
absl::string_view ClassOf(absl::string_view type) { return type.substr(type.rfind('.') + 1); }

// A folder beside modules.json, and nothing else that a path may be.
bool IsFolderName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
}

struct Mode {
  absl::string_view flag, name;  // in older files, in newer ones
  bool known;
  Pooling pooling = Pooling::kLast;
};
constexpr Mode kModes[] = {
    {"pooling_mode_lasttoken", "lasttoken", true, Pooling::kLast},
    {"pooling_mode_mean_tokens", "mean", true, Pooling::kMean},
    {"pooling_mode_cls_token", "cls", true, Pooling::kFirst},
    {"pooling_mode_max_tokens", "max", false},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", false},
    {"pooling_mode_weightedmean_tokens", "weightedmean", false},
};

Status Choose(const JsonFields& fields, absl::string_view key, const Mode& mode, const Mode** chosen) {
  if (!mode.known) return fields.Bad(Code::kUnsupported, key, "is not supported; known are lasttoken, mean and cls");
  if (*chosen != nullptr) {
    return fields.Bad(Code::kUnsupported, key, "beside ", (*chosen)->name, ": several poolings are not supported");
  }
  *chosen = &mode;
  return OkStatus();
}

Status ReadPoolingModule(const std::string& path, PoolingConfig* out) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kLimits.bytes));
  ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path, kLimits));
  ASSIGN_OR_RETURN(const auto root, document.RootObject());
  const JsonFields fields(path, "", root);
  const Mode* chosen = nullptr;
  constexpr absl::string_view kMode = "pooling_mode";
  if (fields.Find(kMode)) {
    ASSIGN_OR_RETURN(const auto name, fields.String(kMode));
    const auto* mode = std::find_if(std::begin(kModes), std::end(kModes),
                                    [&](const Mode& m) { return m.name == *name; });
    if (mode == std::end(kModes)) {
      return fields.Bad(Code::kUnsupported, kMode, "is ", file::Quote(*name), "; known are lasttoken, mean and cls");
    }
    RETURN_IF_ERROR(Choose(fields, kMode, *mode, &chosen));
  } else {
    for (const Mode& mode : kModes) {
      ASSIGN_OR_RETURN(const auto set, fields.Boolean(mode.flag));
      if (set.value_or(false)) RETURN_IF_ERROR(Choose(fields, mode.flag, mode, &chosen));
    }
    if (chosen == nullptr) return fields.Bad(Code::kBadModel, "pooling_mode_*", "are all false or absent");
  }
  out->pooling = chosen->pooling;
  ASSIGN_OR_RETURN(const auto include, fields.Boolean("include_prompt"));
  out->include_prompt = include.value_or(true);
  return OkStatus();
}

Status ReadModules(const std::string& directory, const std::string& path, absl::string_view text,
                   PoolingConfig* out) {
  ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path, kLimits));
  simdjson::dom::array modules;
  if (document.root().get(modules)) {
    return Error(Code::kBadModel, path, " is ", file::KindOf(document.root()), ", not an array of modules");
  }
  out->stated = true;
  out->normalise = false;
  bool pooled = false;
  size_t index = 0;
  for (const auto module : modules) {
    const std::string prefix = absl::StrCat("[", index++, "].");
    simdjson::dom::object object;
    if (module.get(object)) {
      return Error(Code::kBadModel, path, ": ", prefix, " is ", file::KindOf(module), ", not an object");
    }
    const JsonFields fields(path, prefix, object);
    ASSIGN_OR_RETURN(const auto type, fields.String("type"));
    ASSIGN_OR_RETURN(const auto folder, fields.String("path"));
    if (!type) return fields.Bad(Code::kBadModel, "type", "is absent");
    const absl::string_view name = ClassOf(*type);
    if (name == "Transformer") {
      if (folder.value_or("").empty()) continue;
      return fields.Bad(Code::kUnsupported, "path", "is ", file::Quote(*folder),
                        ": a model in a folder of its own; open that folder");
    }
    if (name == "Normalize") {
      out->normalise = true;
    } else if (name != "Pooling" || pooled) {
      return fields.Bad(Code::kUnsupported, "type", "is ", file::Quote(*type),
                        "; known are Transformer, one Pooling, and Normalize");
    } else if (!IsFolderName(folder.value_or(""))) {
      return fields.Bad(Code::kBadModel, "path", "is ", file::Quote(folder.value_or("")),
                        ", not the name of a folder beside it");
    } else {
      pooled = true;
      RETURN_IF_ERROR(ReadPoolingModule(absl::StrCat(directory, "/", *folder, "/config.json"), out));
    }
  }
  return pooled ? OkStatus() : Error(Code::kUnsupported, path, " has no module of type Pooling");
}

Status ReadPrompts(const std::string& path, absl::string_view text, PoolingConfig* out) {
  ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path, kLimits));
  ASSIGN_OR_RETURN(const auto root, document.RootObject());
  const JsonFields fields(path, "", root);
  ASSIGN_OR_RETURN(const auto prompts, fields.Object("prompts"));
  if (prompts) {
    for (const auto prompt : prompts->members()) {
      const absl::string_view name = file::View(prompt.key);
      if (out->prompts.size() == kMaxPrompts) {
        return fields.Bad(Code::kBadModel, "prompts", "are more than ", kMaxPrompts);
      }
      ASSIGN_OR_RETURN(const auto value, prompts->String(name));
      out->prompts.emplace_back(std::string(name), std::string(value.value_or("")));
    }
  }
  ASSIGN_OR_RETURN(const auto usual, fields.String("default_prompt_name"));
  if (!usual) return OkStatus();
  out->default_prompt = std::string(*usual);
  const bool there = std::any_of(out->prompts.begin(), out->prompts.end(),
                                 [&](const auto& prompt) { return prompt.first == *usual; });
  if (there) return OkStatus();
  return fields.Bad(Code::kBadModel, "default_prompt_name", "is ", file::Quote(*usual), ", which is none of prompts");
}

}  // namespace

StatusOr<PoolingConfig> ReadPooling(const std::string& directory) {
  PoolingConfig config;
  const std::string modules = absl::StrCat(directory, "/modules.json");
  ASSIGN_OR_RETURN(const std::string text, ReadIfThere(modules));
  if (!text.empty()) RETURN_IF_ERROR(ReadModules(directory, modules, text, &config));
  const std::string prompts = absl::StrCat(directory, "/config_sentence_transformers.json");
  ASSIGN_OR_RETURN(const std::string named, ReadIfThere(prompts));
  if (!named.empty()) RETURN_IF_ERROR(ReadPrompts(prompts, named, &config));
  return config;
}

}  // namespace mainarch::model
