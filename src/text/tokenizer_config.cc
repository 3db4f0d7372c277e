// SPDX-License-Identifier: MIT
#include "text/tokenizer_config.h"

#include "absl/strings/escaping.h"
#include "base/decimal.h"
#include "text/json_fields.h"
#include "text/parts_json.h"

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

// {"151643": {"content": "<|endoftext|>", ..}, ..}
Status ReadAddedDecoder(const JsonObject& root, std::vector<AddedToken>* out) {
  constexpr absl::string_view kKey = "added_tokens_decoder";
  if (IsNull(root, kKey)) return OkStatus();
  ASSIGN_OR_RETURN(const JsonObject tokens, NeedObject(root, "", kKey));
  for (const auto field : tokens) {
    const absl::string_view key(field.key.data(), field.key.size());
    const std::string path = absl::StrCat(kKey, ".", absl::CHexEscape(key.substr(0, 64)));
    const std::optional<uint64_t> id = ParseDecimal(key);
    if (!id.has_value()) return Error(Code::kBadModel, path, " is not named by a token's id");
    JsonObject object;
    if (field.value.get(object)) {
      return Error(Code::kBadModel, path, " is ", KindOf(field.value), ", not an object");
    }
    if (out->size() == kMaxAddedTokens) {
      return Error(Code::kBadModel, path, " is over the limit of ", kMaxAddedTokens, " tokens");
    }
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedFields(object, path, *id));
    out->push_back(std::move(token));
  }
  return OkStatus();
}

Status ReadFlag(const JsonObject& root, absl::string_view key, std::optional<bool>* out) {
  JsonElement element;
  if (root.at_key({key.data(), key.size()}).get(element)) return OkStatus();
  ASSIGN_OR_RETURN(*out, BoolOr(root, "", key, false));
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
  RETURN_IF_ERROR(ReadAddedDecoder(root, &config.added));
  RETURN_IF_ERROR(ReadFlag(root, "add_bos_token", &config.add_bos));
  RETURN_IF_ERROR(ReadFlag(root, "add_eos_token", &config.add_eos));
  return config;
}

}  // namespace mainarch::text
