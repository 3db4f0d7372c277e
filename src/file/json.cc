// SPDX-License-Identifier: MIT
#include "file/json.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/hash_map.h"
#include "base/json_marks.h"
#include "base/json_numbers.h"

namespace mainarch::file {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

// More of a name than this tells nobody more.
constexpr size_t kQuotedBytes = 200;
// Up to here comparing all pairs of keys is cheaper than hashing them.
constexpr size_t kFewKeys = 8;

// `where` grows and shrinks with the walk, and is only spelled out when something is wrong.
struct DuplicateKeys {
  absl::string_view file;
  std::string where;

  Status Refuse(absl::string_view key) const {
    return Error(Code::kBadModel, file, ": key ", Quote(key), " appears twice in ",
                 where.empty() ? "the outermost object" : Quote(where), ", the limit is 1");
  }

  Status CheckKeys(const object& members) const {
    const size_t size = members.size();
    if (size <= kFewKeys) {
      for (auto a = members.begin(); a != members.end(); ++a) {
        for (auto b = members.begin(); b != a; ++b) {
          if ((*a).key == (*b).key) return Refuse(View((*a).key));
        }
      }
      return OkStatus();
    }
    HashSet<absl::string_view> seen;
    seen.reserve(size);
    for (const auto& member : members) {
      if (!seen.insert(View(member.key)).second) return Refuse(View(member.key));
    }
    return OkStatus();
  }

  // Recursion is bounded by the depth limit of the parser.
  Status Walk(element value) {
    if (value.type() == element_type::OBJECT) {
      object members;
      if (value.get(members) != simdjson::SUCCESS) return OkStatus();
      RETURN_IF_ERROR(CheckKeys(members));
      for (const auto& member : members) {
        const size_t length = where.size();
        absl::StrAppend(&where, where.empty() ? "" : ".", View(member.key).substr(0, kQuotedBytes));
        RETURN_IF_ERROR(Walk(member.value));
        where.resize(length);
      }
    } else if (value.type() == element_type::ARRAY) {
      array items;
      if (value.get(items) != simdjson::SUCCESS) return OkStatus();
      for (const element item : items) RETURN_IF_ERROR(Walk(item));
    }
    return OkStatus();
  }
};

Status ParseFailure(absl::string_view file, simdjson::error_code error, const JsonLimits& limits) {
  switch (error) {
    case simdjson::MEMALLOC:
      return Error(Code::kOutOfHostMemory, file, ": no memory to parse the json in it");
    case simdjson::DEPTH_ERROR:
      return Error(Code::kBadModel, file, ": json nested deeper than the limit of ", limits.depth);
    case simdjson::UTF8_ERROR:
      return Error(Code::kBadModel, file, ": json is not valid utf-8");
    case simdjson::NUMBER_ERROR:
      return Error(Code::kBadModel, file,
                   ": json has a number that is malformed or beyond a double's range (NaN and Infinity "
                   "are not json)");
    case simdjson::EMPTY:
      return Error(Code::kBadModel, file, ": json is empty");
    default:
      return Error(Code::kBadModel, file, ": malformed json (",
                   absl::CEscape(simdjson::error_message(error)), ")");
  }
}

}  // namespace

StatusOr<JsonDocument> JsonDocument::Parse(absl::string_view text, absl::string_view file,
                                           const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Error(Code::kBadModel, file, ": json of ", text.size(),
                 " bytes, more than the limit of ", limits.bytes);
  }
  // A text has no more marks than bytes.
  if (text.size() >= limits.values && CountJsonMarks(text) >= limits.values) {
    return Error(Code::kBadModel, file, ": json of ", CountJsonMarks(text) + 1,
                 " values and keys, more than the limit of ", limits.values);
  }
  JsonDocument document;
  document.file_ = std::string(file);
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  // simdjson refuses the level that reaches its number, so one more; it does not count an empty
  // object or array as a level. What is allocated here, parse() keeps, with its depth.
  simdjson::error_code error =
      document.parser_->allocate(text.size() < 64 ? 64 : text.size(), limits.depth + 1);
  if (error == simdjson::SUCCESS) {
    // A view of nothing may have no address, which the copy in there must not see.
    const char* bytes = text.empty() ? "" : text.data();
    error = document.parser_->parse(bytes, text.size()).get(document.root_);
  }
  if (error == simdjson::NUMBER_ERROR) {
    const std::string narrowed = WideIntegersAsFractions(text);
    error = document.parser_->allocate(std::max<size_t>(narrowed.size(), 64), limits.depth + 1);
    if (error == simdjson::SUCCESS) {
      error = document.parser_->parse(narrowed.data(), narrowed.size()).get(document.root_);
    }
  }
  if (error != simdjson::SUCCESS) return ParseFailure(file, error, limits);
  DuplicateKeys duplicates{file, {}};
  RETURN_IF_ERROR(duplicates.Walk(document.root_));
  return document;
}

StatusOr<object> JsonDocument::RootObject() const {
  object members;
  if (root_.get(members) != simdjson::SUCCESS) {
    return Error(Code::kBadModel, file_, ": the json is ", KindOf(root_), ", not an object");
  }
  return members;
}

absl::string_view KindOf(element value) {
  switch (value.type()) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
    case element_type::UINT64:
      return "an integer";
    case element_type::DOUBLE:
      return "a fraction";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "a boolean";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "unknown";
}

std::string Quote(absl::string_view text) {
  const bool cut = text.size() > kQuotedBytes;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kQuotedBytes)),
                      cut ? "...\"" : "\"");
}

std::string Show(element value) {
  switch (value.type()) {
    case element_type::INT64:
      return absl::StrCat(value.get_int64().value_unsafe());
    case element_type::UINT64:
      return absl::StrCat(value.get_uint64().value_unsafe());
    case element_type::DOUBLE: {
      // 1.0 must not look like the integer that it was refused for not being.
      const std::string text = absl::StrCat(value.get_double().value_unsafe());
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    case element_type::STRING:
      return Quote(View(value.get_string().value_unsafe()));
    case element_type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    default:
      return std::string(KindOf(value));
  }
}

}  // namespace mainarch::file
