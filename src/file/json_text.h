// SPDX-License-Identifier: MIT
//
// JSON as text: strings, and an object with a key a line. Text must be UTF-8; nothing is nested but
// what the caller puts together.
#ifndef MAINARCH_FILE_JSON_TEXT_H_
#define MAINARCH_FILE_JSON_TEXT_H_

#include <charconv>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mainarch::file {

inline std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          absl::StrAppend(&out, "\\u00", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

// Text that reads back as the same number, and as no integer.
inline std::string JsonNumber(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific);
  return std::string(text, end.ptr);
}

class JsonObjectText {
 public:
  void Raw(absl::string_view key, absl::string_view json) {
    absl::StrAppend(&text_, text_.empty() ? "{\n" : ",\n", "  \"", key, "\": ", json);
  }
  void Text(absl::string_view key, absl::string_view value) { Raw(key, JsonString(value)); }
  void Integer(absl::string_view key, int64_t value) { Raw(key, absl::StrCat(value)); }
  void Number(absl::string_view key, double value) { Raw(key, JsonNumber(value)); }
  void Flag(absl::string_view key, bool value) { Raw(key, value ? "true" : "false"); }
  std::string Done() const { return text_.empty() ? "{}" : text_ + "\n}"; }

 private:
  std::string text_;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_JSON_TEXT_H_
