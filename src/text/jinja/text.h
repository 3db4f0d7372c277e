// SPDX-License-Identifier: MIT
//
// Values as text: str(), repr(), JSON, HTML.
#ifndef MAINARCH_TEXT_JINJA_TEXT_H_
#define MAINARCH_TEXT_JINJA_TEXT_H_

#include <string>

#include "text/jinja/value.h"

namespace mainarch::text::jinja {

// As str(value): what {{ value }} writes.
void AddStr(Builder* out, const Value& value);
Value Str(Heap* heap, const Value& value);  // the value itself when it is a string
// As repr(value): how it stands in a list that is written.
void AddRepr(Builder* out, const Value& value, int depth = 0);

// The text of a string, with & < > ' " as entities.
void AddEscaped(Builder* out, absl::string_view text);
void AddMaybeEscaped(Builder* out, const Value& string, bool escape);

// As json.dumps: transformers' tojson.
struct JsonStyle {
  bool ascii = false;       // what is not is escaped: a backslash, u, four hexadecimal digits
  bool sorted = false;      // keys
  bool lines = false;       // an element a line
  std::string indent;       // of a level, with `lines`
  std::string item = ", ";  // between elements; without `lines`
  std::string key = ": ";
};
void AddJson(Builder* out, const Value& value, const JsonStyle& style, int depth = 0);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_TEXT_H_
