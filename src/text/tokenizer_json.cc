// SPDX-License-Identifier: MIT
#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "base/hash_map.h"
#include "text/json_fields.h"
#include "text/parts_json.h"

namespace mainarch::text {
namespace {

constexpr size_t kMaxAddedBytes = 1024;  // of one added token

StatusOr<AddedToken> ReadAddedToken(const JsonObject& object, const std::string& path) {
  constexpr std::array<absl::string_view, 7> kKeys = {
      "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"};
  RETURN_IF_ERROR(CheckKeys(object, path, kKeys));
  ASSIGN_OR_RETURN(const uint64_t id, NeedUnsigned(object, path, "id"));
  return ReadAddedFields(object, path, id);
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

StatusOr<AddedToken> ReadAddedFields(const JsonObject& object, const std::string& path,
                                     uint64_t id) {
  AddedToken token;
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
  ASSIGN_OR_RETURN(token.single_word, BoolOr(object, path, "single_word", false));
  ASSIGN_OR_RETURN(token.special, BoolOr(object, path, "special", false));
  ASSIGN_OR_RETURN(token.normalized, BoolOr(object, path, "normalized", !token.special));
  ASSIGN_OR_RETURN(token.lstrip, BoolOr(object, path, "lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, BoolOr(object, path, "rstrip", false));
  return token;
}

Status ReadTokenizerJson(absl::string_view json, const ByteLevel& byte_level,
                         TokenizerParts* parts) {
  constexpr std::array<absl::string_view, 9> kKeys = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model"};
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const JsonObject root,
                   ParseObject(json, {kMaxTokenizerJson, kMaxTokenizerValues}, &parser));
  RETURN_IF_ERROR(CheckKeys(root, "", kKeys));
  if (!IsNull(root, "version")) {
    ASSIGN_OR_RETURN(const absl::string_view version, NeedString(root, "", "version"));
    if (version != "1.0") {
      return Error(Code::kUnsupported, "version is \"", absl::CHexEscape(version.substr(0, 64)),
                   "\"; mainarch takes 1.0");
    }
  }
  RETURN_IF_ERROR(ReadNormalizer(root, &parts->normalizer));
  RETURN_IF_ERROR(ReadPreTokenizer(root, parts));
  RETURN_IF_ERROR(ReadPostProcessor(root, parts));
  RETURN_IF_ERROR(ReadDecoder(root, &parts->decoder));
  RETURN_IF_ERROR(ReadAddedTokens(root, parts));
  return ReadModel(root, byte_level, parts);
}

}  // namespace mainarch::text
