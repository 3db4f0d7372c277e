// SPDX-License-Identifier: MIT
//
// Typed access to the fields of a JSON object of the files read here, with errors that name the
// field and what stands there. Private to this folder.
#ifndef MAINARCH_TEXT_JSON_FIELDS_H_
#define MAINARCH_TEXT_JSON_FIELDS_H_

#include <simdjson.h>

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::text {

using JsonObject = simdjson::dom::object;
using JsonElement = simdjson::dom::element;

struct JsonSizes {
  size_t bytes;
  size_t values;  // and keys, by their marks (base/json_marks.h)
  // Integers beyond 64 bits are read as fractions, and not refused.
  bool wide_integers = true;
};

// Parses `json`, which needs no padding, as one object. The parser owns what the object points to.
StatusOr<JsonObject> ParseObject(absl::string_view json, const JsonSizes& limits,
                                 simdjson::dom::parser* parser);

// "a string", "an object", ...
absl::string_view KindOf(const JsonElement& element);
// The value for a message, cut short.
std::string ShownValue(const JsonElement& element);

// An error that says what `path` is and what it may be.
Status Unsupported(absl::string_view path, const JsonElement& element, absl::string_view wanted);

// Refuses keys that stand twice or are not in `known`.
Status CheckKeys(const JsonObject& object, absl::string_view path,
                 absl::Span<const absl::string_view> known);

StatusOr<JsonElement> NeedField(const JsonObject& object, absl::string_view path,
                                absl::string_view key);
StatusOr<JsonObject> NeedObject(const JsonObject& object, absl::string_view path,
                                absl::string_view key);
StatusOr<absl::string_view> NeedString(const JsonObject& object, absl::string_view path,
                                       absl::string_view key);
StatusOr<uint64_t> NeedUnsigned(const JsonObject& object, absl::string_view path,
                                absl::string_view key);
// `otherwise` when the field is absent or null.
StatusOr<bool> BoolOr(const JsonObject& object, absl::string_view path, absl::string_view key,
                      bool otherwise);
// True for a field that is absent or null.
bool IsNull(const JsonObject& object, absl::string_view key);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_JSON_FIELDS_H_
