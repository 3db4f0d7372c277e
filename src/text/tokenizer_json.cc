// SPDX-License-Identifier: MIT
#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "base/hash_map.h"
#include "text/json_fields.h"
#include "text/model_json.h"

namespace mainarch::text {
namespace {

constexpr size_t kMaxAddedTokens = size_t{1} << 16;
constexpr size_t kMaxAddedBytes = 1024;  // of one of them

// "type" of an object; a field that is absent or null has none.
StatusOr<absl::string_view> TypeOf(const JsonObject& root, absl::string_view key) {
  if (IsNull(root, key)) return absl::string_view();
  ASSIGN_OR_RETURN(const JsonObject object, NeedObject(root, "", key));
  return NeedString(object, key, "type");
}

Status NeedFlag(const JsonObject& object, absl::string_view path, absl::string_view key,
                bool otherwise, bool wanted) {
  ASSIGN_OR_RETURN(const bool value, BoolOr(object, path, key, otherwise));
  if (value == wanted) return OkStatus();
  return Error(Code::kUnsupported, path, ".", key, " is ", value ? "true" : "false",
               "; mainarch takes ", wanted ? "true" : "false");
}

Status ReadNormalizer(const JsonObject& root, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const absl::string_view type, TypeOf(root, "normalizer"));
  parts->nfc = type == "NFC";
  if (!parts->nfc && !type.empty()) {
    return Error(Code::kUnsupported, "normalizer.type is \"", absl::CHexEscape(type.substr(0, 64)),
                 "\"; mainarch takes NFC or null");
  }
  return OkStatus();
}

// A decoder or post-processor of type ByteLevel changes no ids whatever its options say.
Status ReadByteLevelOnly(const JsonObject& root, absl::string_view key, bool may_be_null) {
  ASSIGN_OR_RETURN(const absl::string_view type, TypeOf(root, key));
  if (type == "ByteLevel" || (type.empty() && may_be_null)) return OkStatus();
  return Error(Code::kUnsupported, key, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
               "\"; mainarch takes ByteLevel", may_be_null ? " or null" : "");
}

Status ReadSplit(const JsonObject& split, TokenizerParts* parts) {
  constexpr absl::string_view kPath = "pre_tokenizer.pretokenizers[0]";
  constexpr std::array<absl::string_view, 4> kKeys = {"type", "pattern", "behavior", "invert"};
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(split, kPath, "type"));
  if (type != "Split") {
    return Error(Code::kUnsupported, kPath, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
                 "\"; mainarch takes Split");
  }
  RETURN_IF_ERROR(CheckKeys(split, kPath, kKeys));
  ASSIGN_OR_RETURN(const absl::string_view behavior, NeedString(split, kPath, "behavior"));
  if (behavior != "Isolated") {
    return Error(Code::kUnsupported, kPath, ".behavior is \"",
                 absl::CHexEscape(behavior.substr(0, 64)), "\"; mainarch takes Isolated");
  }
  RETURN_IF_ERROR(NeedFlag(split, kPath, "invert", false, false));
  ASSIGN_OR_RETURN(const JsonObject pattern, NeedObject(split, kPath, "pattern"));
  constexpr std::array<absl::string_view, 1> kPatternKeys = {"Regex"};
  RETURN_IF_ERROR(CheckKeys(pattern, absl::StrCat(kPath, ".pattern"), kPatternKeys));
  ASSIGN_OR_RETURN(const absl::string_view regex,
                   NeedString(pattern, absl::StrCat(kPath, ".pattern"), "Regex"));
  parts->pattern = std::string(regex);
  return OkStatus();
}

Status ReadByteLevelPreTokenizer(const JsonObject& object) {
  constexpr absl::string_view kPath = "pre_tokenizer.pretokenizers[1]";
  constexpr std::array<absl::string_view, 4> kKeys = {"type", "add_prefix_space", "trim_offsets",
                                                      "use_regex"};
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(object, kPath, "type"));
  if (type != "ByteLevel") {
    return Error(Code::kUnsupported, kPath, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
                 "\"; mainarch takes ByteLevel");
  }
  RETURN_IF_ERROR(CheckKeys(object, kPath, kKeys));
  // Both default to true in the package.
  RETURN_IF_ERROR(NeedFlag(object, kPath, "add_prefix_space", true, false));
  return NeedFlag(object, kPath, "use_regex", true, false);
}

Status ReadPreTokenizer(const JsonObject& root, TokenizerParts* parts) {
  constexpr std::array<absl::string_view, 2> kKeys = {"type", "pretokenizers"};
  ASSIGN_OR_RETURN(const JsonObject object, NeedObject(root, "", "pre_tokenizer"));
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(object, "pre_tokenizer", "type"));
  if (type != "Sequence") {
    return Error(Code::kUnsupported, "pre_tokenizer.type is \"",
                 absl::CHexEscape(type.substr(0, 64)),
                 "\"; mainarch takes a Sequence of Split and ByteLevel");
  }
  RETURN_IF_ERROR(CheckKeys(object, "pre_tokenizer", kKeys));
  ASSIGN_OR_RETURN(const JsonElement list, NeedField(object, "pre_tokenizer", "pretokenizers"));
  simdjson::dom::array steps;
  JsonObject split, byte_level;
  if (list.get(steps) || steps.size() != 2 || steps.at(0).get(split) ||
      steps.at(1).get(byte_level)) {
    return Error(Code::kUnsupported,
                 "pre_tokenizer.pretokenizers is not the two objects Split and "
                 "ByteLevel that mainarch takes");
  }
  RETURN_IF_ERROR(ReadSplit(split, parts));
  return ReadByteLevelPreTokenizer(byte_level);
}

StatusOr<AddedToken> ReadAddedToken(const JsonObject& object, const std::string& path) {
  constexpr std::array<absl::string_view, 7> kKeys = {
      "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"};
  RETURN_IF_ERROR(CheckKeys(object, path, kKeys));
  AddedToken token;
  ASSIGN_OR_RETURN(const uint64_t id, NeedUnsigned(object, path, "id"));
  ASSIGN_OR_RETURN(const absl::string_view content, NeedString(object, path, "content"));
  if (id >= kMaxTokens) {
    return Error(Code::kBadModel, path, ".id is ", id, ", over the limit ", kMaxTokens - 1);
  }
  if (content.empty() || content.size() > kMaxAddedBytes) {
    return Error(Code::kBadModel, path, ".content has ", content.size(), " bytes, not 1 to ",
                 kMaxAddedBytes);
  }
  token.id = static_cast<uint32_t>(id);
  token.content = std::string(content);
  // Single words end where \w ends, for which no table is kept here.
  RETURN_IF_ERROR(NeedFlag(object, path, "single_word", false, false));
  ASSIGN_OR_RETURN(token.special, BoolOr(object, path, "special", false));
  ASSIGN_OR_RETURN(token.normalized, BoolOr(object, path, "normalized", !token.special));
  ASSIGN_OR_RETURN(token.lstrip, BoolOr(object, path, "lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, BoolOr(object, path, "rstrip", false));
  return token;
}

Status ReadAddedTokens(const JsonObject& root, TokenizerParts* parts) {
  if (IsNull(root, "added_tokens")) return OkStatus();
  ASSIGN_OR_RETURN(const JsonElement list, NeedField(root, "", "added_tokens"));
  simdjson::dom::array tokens;
  if (list.get(tokens)) {
    return Error(Code::kBadModel, "added_tokens is ", KindOf(list), ", not an array");
  }
  HashSet<std::string> contents;
  for (const JsonElement element : tokens) {
    const std::string path = absl::StrCat("added_tokens[", parts->added.size(), "]");
    if (parts->added.size() == kMaxAddedTokens) {
      return Error(Code::kBadModel, path, " is over the limit of ", kMaxAddedTokens, " tokens");
    }
    JsonObject object;
    if (element.get(object)) {
      return Error(Code::kBadModel, path, " is ", KindOf(element), ", not an object");
    }
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(object, path));
    if (!contents.insert(token.content).second) {
      return Error(Code::kBadModel, path, ".content \"",
                   absl::CHexEscape(token.content.substr(0, 64)), "\" stands twice");
    }
    parts->added.push_back(std::move(token));
  }
  return OkStatus();
}

}  // namespace

Status ReadTokenizerJson(absl::string_view json, const ByteLevel& byte_level,
                         TokenizerParts* parts) {
  constexpr std::array<absl::string_view, 9> kKeys = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model"};
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const JsonObject root, ParseObject(json, {kMaxTokenizerJson, kMaxTokenizerValues}, &parser));
  RETURN_IF_ERROR(CheckKeys(root, "", kKeys));
  if (!IsNull(root, "version")) {
    ASSIGN_OR_RETURN(const absl::string_view version, NeedString(root, "", "version"));
    if (version != "1.0") {
      return Error(Code::kUnsupported, "version is \"", absl::CHexEscape(version.substr(0, 64)),
                   "\"; mainarch takes 1.0");
    }
  }
  RETURN_IF_ERROR(ReadNormalizer(root, parts));
  RETURN_IF_ERROR(ReadPreTokenizer(root, parts));
  RETURN_IF_ERROR(ReadByteLevelOnly(root, "post_processor", /*may_be_null=*/true));
  RETURN_IF_ERROR(ReadByteLevelOnly(root, "decoder", /*may_be_null=*/false));
  RETURN_IF_ERROR(ReadAddedTokens(root, parts));
  ASSIGN_OR_RETURN(const JsonObject model, NeedObject(root, "", "model"));
  return ReadModel(model, byte_level, parts);
}

}  // namespace mainarch::text
