// SPDX-License-Identifier: MIT
#include "text/tokenizer_config.h"

#include "text/json_fields.h"

namespace mainarch::text {
namespace {

constexpr JsonSizes kMaxConfig = {.bytes = size_t{16} << 20, .values = size_t{1} << 20};

// A token is a string, or an object of the fields of an added token.
Status ReadToken(const JsonObject& root, absl::string_view key, std::string* out) {
  if (IsNull(root, key)) return OkStatus();
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(root, "", key));
  JsonObject object;
  absl::string_view text;
  if (element.get(object)) {
    ASSIGN_OR_RETURN(text, NeedString(root, "", key));
  } else {
    ASSIGN_OR_RETURN(text, NeedString(object, key, "content"));
  }
  *out = std::string(text);
  return OkStatus();
}

// A string, or a list of {"name": .., "template": ..}.
Status ReadTemplate(const JsonObject& root, std::string* out) {
  constexpr absl::string_view kKey = "chat_template";
  if (IsNull(root, kKey)) return OkStatus();
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(root, "", kKey));
  simdjson::dom::array list;
  if (element.get(list)) {
    ASSIGN_OR_RETURN(const absl::string_view text, NeedString(root, "", kKey));
    *out = std::string(text);
    return OkStatus();
  }
  for (const JsonElement item : list) {
    JsonObject object;
    if (item.get(object)) {
      return Error(Code::kBadModel, "chat_template[] is ", KindOf(item), ", not an object");
    }
    ASSIGN_OR_RETURN(const absl::string_view name, NeedString(object, "chat_template[]", "name"));
    ASSIGN_OR_RETURN(const absl::string_view text,
                     NeedString(object, "chat_template[]", "template"));
    if (name == "default") *out = std::string(text);
  }
  return OkStatus();
}

}  // namespace

StatusOr<TokenizerConfig> ReadTokenizerConfig(absl::string_view json) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const JsonObject root, ParseObject(json, kMaxConfig, &parser));
  TokenizerConfig config;
  RETURN_IF_ERROR(ReadToken(root, "bos_token", &config.bos_token));
  RETURN_IF_ERROR(ReadToken(root, "eos_token", &config.eos_token));
  RETURN_IF_ERROR(ReadToken(root, "pad_token", &config.pad_token));
  RETURN_IF_ERROR(ReadTemplate(root, &config.chat_template));
  return config;
}

}  // namespace mainarch::text
