// SPDX-License-Identifier: MIT
#include <utility>

#include "absl/strings/escaping.h"
#include "text/parts_json.h"

namespace mainarch::text {
namespace {

constexpr size_t kMaxAround = 64;  // tokens before a text, and behind it

Status Check(const JsonObject& object, absl::string_view path,
             std::initializer_list<absl::string_view> keys) {
  return CheckKeys(object, path, absl::Span<const absl::string_view>(keys.begin(), keys.size()));
}

struct Around {
  std::vector<uint32_t> before, after;
};

StatusOr<uint32_t> TokenOf(const JsonElement& element, const std::string& path) {
  uint64_t id;
  if (element.get(id) || id >= kMaxTokens) {
    return Error(Code::kBadModel, path, " is ", ShownValue(element), ", not a token's id");
  }
  return static_cast<uint32_t>(id);
}

StatusOr<simdjson::dom::array> NeedArray(const JsonObject& object, const std::string& path,
                                         absl::string_view key) {
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(object, path, key));
  simdjson::dom::array list;
  if (element.get(list)) {
    return Error(Code::kBadModel, path, ".", key, " is ", KindOf(element), ", not an array");
  }
  return list;
}

// [content, id]
StatusOr<uint32_t> ReadPair(const JsonObject& object, const std::string& path,
                            absl::string_view key) {
  ASSIGN_OR_RETURN(const simdjson::dom::array pair, NeedArray(object, path, key));
  const std::string where = absl::StrCat(path, ".", key);
  if (pair.size() != 2) {
    return Error(Code::kBadModel, where, " has ", pair.size(), " values, not a token and its id");
  }
  JsonElement id;
  if (pair.at(1).get(id)) return Error(Code::kBadModel, where, " is not a token and its id");
  return TokenOf(id, where + "[1]");
}

Status AppendSpecial(const JsonObject& tokens, const std::string& path, absl::string_view name,
                     std::vector<uint32_t>* out) {
  ASSIGN_OR_RETURN(const JsonObject token, NeedObject(tokens, path + ".special_tokens", name));
  const std::string where =
      absl::StrCat(path, ".special_tokens.", absl::CHexEscape(name.substr(0, 64)));
  ASSIGN_OR_RETURN(const simdjson::dom::array ids, NeedArray(token, where, "ids"));
  for (const JsonElement id : ids) {
    ASSIGN_OR_RETURN(const uint32_t value, TokenOf(id, where + ".ids[]"));
    if (out->size() == kMaxAround) {
      return Error(Code::kUnsupported, path, " puts over ", kMaxAround, " tokens around a text");
    }
    out->push_back(value);
  }
  return OkStatus();
}

Status ReadTemplate(const JsonObject& object, const std::string& path, Around* out) {
  RETURN_IF_ERROR(Check(object, path, {"type", "single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const simdjson::dom::array single, NeedArray(object, path, "single"));
  ASSIGN_OR_RETURN(const JsonObject tokens, NeedObject(object, path, "special_tokens"));
  size_t sequences = 0;
  const std::string where = path + ".single[]";
  for (const JsonElement element : single) {
    JsonObject piece;
    if (element.get(piece)) {
      return Error(Code::kBadModel, where, " is ", KindOf(element), ", not an object");
    }
    if (!IsNull(piece, "Sequence")) {
      ASSIGN_OR_RETURN(const JsonObject sequence, NeedObject(piece, where, "Sequence"));
      ASSIGN_OR_RETURN(const absl::string_view id, NeedString(sequence, where, "id"));
      sequences += id == "A" ? 1 : 2;
      continue;
    }
    ASSIGN_OR_RETURN(const JsonObject special, NeedObject(piece, where, "SpecialToken"));
    ASSIGN_OR_RETURN(const absl::string_view id, NeedString(special, where, "id"));
    RETURN_IF_ERROR(AppendSpecial(tokens, path, id, sequences == 0 ? &out->before : &out->after));
  }
  if (sequences == 1) return OkStatus();
  return Error(Code::kUnsupported, path, ".single is not a text, A, with tokens around it");
}

Status ReadProcessor(const JsonObject& object, const std::string& path, size_t* count,
                     TokenizerParts* parts) {
  if (++*count > kMaxSteps) {
    return Error(Code::kUnsupported, path, " is over the limit of ", kMaxSteps, " processors");
  }
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(object, path, "type"));
  Around around;
  if (type == "Sequence") {
    RETURN_IF_ERROR(Check(object, path, {"type", "processors"}));
    ASSIGN_OR_RETURN(const auto steps, ReadSteps(object, path, "processors"));
    for (size_t i = 0; i < steps.size(); ++i) {
      RETURN_IF_ERROR(
          ReadProcessor(steps[i], absl::StrCat(path, ".processors[", i, "]"), count, parts));
    }
    return OkStatus();
  }
  if (type == "ByteLevel") return OkStatus();  // moves offsets only
  if (type == "TemplateProcessing") {
    RETURN_IF_ERROR(ReadTemplate(object, path, &around));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    RETURN_IF_ERROR(
        Check(object, path, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    ASSIGN_OR_RETURN(const uint32_t cls, ReadPair(object, path, "cls"));
    ASSIGN_OR_RETURN(const uint32_t sep, ReadPair(object, path, "sep"));
    around.before.push_back(cls);
    around.after.push_back(sep);
  } else {
    return Error(Code::kUnsupported, path, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
                 "\", which mainarch does not follow");
  }
  // Each is put around what the ones before have made.
  parts->before.insert(parts->before.begin(), around.before.begin(), around.before.end());
  parts->after.insert(parts->after.end(), around.after.begin(), around.after.end());
  return OkStatus();
}

}  // namespace

Status ReadPostProcessor(const JsonObject& root, TokenizerParts* parts) {
  if (IsNull(root, "post_processor")) return OkStatus();
  ASSIGN_OR_RETURN(const JsonObject object, NeedObject(root, "", "post_processor"));
  size_t count = 0;
  return ReadProcessor(object, "post_processor", &count, parts);
}

}  // namespace mainarch::text
