// SPDX-License-Identifier: MIT
#include "text/json_fields.h"

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/json_marks.h"
#include "base/json_numbers.h"
#include "text/huge_allocator.h"

namespace mainarch::text {
namespace {

constexpr size_t kMaxDepth = 64;  // of these files: a handful

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Join(absl::string_view path, absl::string_view key) {
  return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
}

Status WrongKind(absl::string_view path, const JsonElement& element, absl::string_view wanted) {
  return Error(Code::kBadModel, path, " is ", KindOf(element), ", not ", wanted);
}

simdjson::error_code ParsePadded(absl::string_view json, simdjson::dom::parser* parser,
                                 JsonElement* root) {
  simdjson::error_code error = parser->allocate(std::max<size_t>(json.size(), 64), kMaxDepth);
  if (error) return error;
  // What a parse writes, and in a large file mostly waits for the kernel to give.
  simdjson::dom::document& document = parser->doc;
  error = document.allocate(json.size());
  if (error) return error;
  if (document.tape != nullptr) {
    AdviseHugePages(document.tape.get(), json.size() * sizeof(document.tape[0]));
    AdviseHugePages(document.string_buf.get(), json.size());
    AdviseHugePages(parser->implementation->structural_indexes.get(),
                    json.size() * sizeof(parser->implementation->structural_indexes[0]));
  }
  // simdjson reads a little past the end, and copies every string it finds.
  HugeVector<char> padded;
  padded.reserve(json.size() + simdjson::SIMDJSON_PADDING);
  padded.insert(padded.end(), json.begin(), json.end());
  padded.resize(json.size() + simdjson::SIMDJSON_PADDING);
  return parser->parse(padded.data(), json.size(), false).get(*root);
}

}  // namespace

StatusOr<JsonObject> ParseObject(absl::string_view json, const JsonSizes& limits,
                                 simdjson::dom::parser* parser) {
  if (json.size() > limits.bytes) {
    return Error(Code::kBadModel, "has ", json.size(), " bytes, over the limit ", limits.bytes);
  }
  // A text has no more marks than bytes.
  if (json.size() >= limits.values && CountJsonMarks(json) >= limits.values) {
    return Error(Code::kBadModel, "has ", CountJsonMarks(json) + 1,
                 " values and keys, over the limit ", limits.values);
  }
  JsonElement root;
  simdjson::error_code error = ParsePadded(json, parser, &root);
  if (error == simdjson::NUMBER_ERROR && limits.wide_integers) {
    error = ParsePadded(WideIntegersAsFractions(json), parser, &root);
  }
  if (error == simdjson::MEMALLOC) {
    return Error(Code::kOutOfHostMemory, "no memory to parse ", json.size(), " bytes of json");
  }
  if (error == simdjson::DEPTH_ERROR) {
    return Error(Code::kBadModel, "is nested deeper than the limit ", kMaxDepth);
  }
  if (error) return Error(Code::kBadModel, "is not json: ", simdjson::error_message(error));
  JsonObject object;
  if (root.get(object)) return WrongKind("the root", root, "an object");
  return object;
}

absl::string_view KindOf(const JsonElement& element) {
  switch (element.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64:
      return "an integer";
    case simdjson::dom::element_type::DOUBLE:
      return "a number";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "a boolean";
    default:
      return "null";
  }
}

std::string ShownValue(const JsonElement& element) {
  std::string_view text;
  bool flag;
  int64_t number;
  if (!element.get(text))
    return absl::StrCat("\"", absl::CHexEscape(View(text.substr(0, 64))), "\"");
  if (!element.get(flag)) return flag ? "true" : "false";
  if (!element.get(number)) return absl::StrCat(number);
  return std::string(KindOf(element));
}

Status Unsupported(absl::string_view path, const JsonElement& element, absl::string_view wanted) {
  return Error(Code::kUnsupported, path, " is ", ShownValue(element), "; mainarch takes ", wanted);
}

Status CheckKeys(const JsonObject& object, absl::string_view path,
                 absl::Span<const absl::string_view> known) {
  std::vector<bool> seen(known.size());
  for (const auto field : object) {
    const absl::string_view key = View(field.key);
    const auto at = std::find(known.begin(), known.end(), key) - known.begin();
    const std::string name = Join(path, absl::CHexEscape(key.substr(0, 64)));
    if (static_cast<size_t>(at) == known.size()) {
      return Error(Code::kUnsupported, name, " is ", ShownValue(field.value),
                   ", a key that mainarch does not know");
    }
    if (seen[static_cast<size_t>(at)]) return Error(Code::kBadModel, name, " stands twice");
    seen[static_cast<size_t>(at)] = true;
  }
  return OkStatus();
}

StatusOr<JsonElement> NeedField(const JsonObject& object, absl::string_view path,
                                absl::string_view key) {
  JsonElement element;
  if (object.at_key({key.data(), key.size()}).get(element)) {
    return Error(Code::kBadModel, Join(path, key), " is missing");
  }
  return element;
}

StatusOr<JsonObject> NeedObject(const JsonObject& object, absl::string_view path,
                                absl::string_view key) {
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(object, path, key));
  JsonObject value;
  if (element.get(value)) return WrongKind(Join(path, key), element, "an object");
  return value;
}

StatusOr<absl::string_view> NeedString(const JsonObject& object, absl::string_view path,
                                       absl::string_view key) {
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(object, path, key));
  std::string_view value;
  if (element.get(value)) return WrongKind(Join(path, key), element, "a string");
  return View(value);
}

StatusOr<uint64_t> NeedUnsigned(const JsonObject& object, absl::string_view path,
                                absl::string_view key) {
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(object, path, key));
  uint64_t value;
  if (element.get(value)) {
    return Error(Code::kBadModel, Join(path, key), " is ", ShownValue(element),
                 ", not an integer of 0 or more");
  }
  return value;
}

StatusOr<bool> BoolOr(const JsonObject& object, absl::string_view path, absl::string_view key,
                      bool otherwise) {
  if (IsNull(object, key)) return otherwise;
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(object, path, key));
  bool value;
  if (element.get(value)) return WrongKind(Join(path, key), element, "a boolean");
  return value;
}

bool IsNull(const JsonObject& object, absl::string_view key) {
  JsonElement element;
  return object.at_key({key.data(), key.size()}).get(element) != simdjson::SUCCESS ||
         element.is_null();
}

}  // namespace mainarch::text
