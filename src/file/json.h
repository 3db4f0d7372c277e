// SPDX-License-Identifier: MIT
//
// Strict reading of untrusted JSON: simdjson's tree, after the size, the number of values, the depth and
// the absence of duplicate keys at every level have been checked. An integer beyond 64 bits is read as a fraction,
// as is what Python's json would give where a float is wanted. A document owns its text; elements borrow from
// it. Immutable once parsed. This header pulls in simdjson: include it from .cc files only.
#ifndef MAINARCH_FILE_JSON_H_
#define MAINARCH_FILE_JSON_H_

#include <simdjson.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::file {

struct JsonLimits {
  size_t bytes = size_t{1} << 20;
  size_t depth = 32;  // of nested objects and arrays
  // Values and keys, by their marks (base/json_marks.h): each may take 24 bytes. Of a file within the
  // default size there cannot be more.
  size_t values = size_t{1} << 20;
};

class JsonDocument {
 public:
  // Copies `text`. `file` is for messages only.
  static StatusOr<JsonDocument> Parse(absl::string_view text, absl::string_view file,
                                      const JsonLimits& limits);

  simdjson::dom::element root() const { return root_; }
  // The root as an object, or an error that says what it is instead.
  StatusOr<simdjson::dom::object> RootObject() const;

 private:
  JsonDocument() = default;

  std::string file_;
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

// "an object", "a string", ...: what a message says of a value of the wrong kind.
absl::string_view KindOf(simdjson::dom::element element);

inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Text from a file as one quoted, printable line of bounded length.
std::string Quote(absl::string_view text);

// A short printable form of a value, for messages.
std::string Show(simdjson::dom::element element);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_JSON_H_
