// SPDX-License-Identifier: MIT
#include "text/chat_config.h"

#include "absl/strings/match.h"
#include "text/json_fields.h"

namespace mainarch::text {
namespace {

constexpr JsonSizes kMaxConfig = {.bytes = size_t{16} << 20, .values = size_t{1} << 20};

// False for what is no token.
bool TokenText(const JsonElement& element, std::string* out) {
  std::string_view text;
  JsonObject object;
  if (element.get(text) && (element.get(object) || object.at_key("content").get(text)))
    return false;
  *out = std::string(text);
  return true;
}

void AddToken(std::string_view key, const JsonElement& element, ChatConfig* config) {
  std::string text;
  if (TokenText(element, &text)) config->tokens.emplace_back(std::string(key), std::move(text));
}

Status ReadTemplates(const JsonObject& root, ChatConfig* config) {
  constexpr absl::string_view kKey = "chat_template", kItem = "chat_template[]";
  if (IsNull(root, kKey)) return OkStatus();
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(root, "", kKey));
  simdjson::dom::array list;
  if (element.get(list)) {
    ASSIGN_OR_RETURN(const absl::string_view text, NeedString(root, "", kKey));
    config->templates.push_back({"default", std::string(text)});
    return OkStatus();
  }
  for (const JsonElement item : list) {
    JsonObject object;
    if (item.get(object)) {
      return Error(Code::kBadModel, kItem, " is ", KindOf(item), ", not an object");
    }
    ASSIGN_OR_RETURN(const absl::string_view name, NeedString(object, kItem, "name"));
    ASSIGN_OR_RETURN(const absl::string_view text, NeedString(object, kItem, "template"));
    config->templates.push_back({std::string(name), std::string(text)});
  }
  return OkStatus();
}

}  // namespace

StatusOr<ChatConfig> ReadChatConfig(absl::string_view json) {
  ChatConfig config;
  if (json.empty()) return config;
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const JsonObject root, ParseObject(json, kMaxConfig, &parser));
  RETURN_IF_ERROR(ReadTemplates(root, &config));
  for (const auto field : root) {
    const absl::string_view key(field.key.data(), field.key.size());
    JsonObject named;
    if (absl::EndsWith(key, "_token")) {
      AddToken(field.key, field.value, &config);
    } else if (key == "extra_special_tokens" && !field.value.get(named)) {
      for (const auto token : named) AddToken(token.key, token.value, &config);
    }
  }
  return config;
}

}  // namespace mainarch::text
