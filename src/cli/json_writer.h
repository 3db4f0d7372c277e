// SPDX-License-Identifier: MIT
//
// Writes JSON text for --json, one value after another; nesting is the caller's to balance. Text
// that is not UTF-8 is repaired, numbers that JSON does not have are null.
#ifndef MAINARCH_CLI_JSON_WRITER_H_
#define MAINARCH_CLI_JSON_WRITER_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mainarch::cli {

class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  JsonWriter& Key(absl::string_view key);

  JsonWriter& Value(absl::string_view text);
  JsonWriter& Value(const std::string& text) { return Value(absl::string_view(text)); }
  JsonWriter& Value(const char* text) { return Value(absl::string_view(text)); }
  JsonWriter& Value(double number);
  JsonWriter& Value(bool flag) { return Raw(flag ? "true" : "false"); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& Value(T number) {
    return Raw(absl::StrCat(number));
  }
  JsonWriter& Null() { return Raw("null"); }

  template <class T>
  JsonWriter& Field(absl::string_view key, const T& value) {
    return Key(key).Value(value);
  }
  template <class T>
  JsonWriter& List(absl::string_view key, const T& values) {
    Key(key).BeginArray();
    for (const auto& value : values) Value(value);
    return EndArray();
  }

  const std::string& text() const { return text_; }
  // Writes the text and a newline to stdout.
  void Print() const;
  // Some object's Print has begun, on any thread.
  static bool printed();

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  JsonWriter& Raw(absl::string_view json);
  void Separate();

  std::string text_;
  std::vector<bool> has_items_;
  bool after_key_ = false;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_JSON_WRITER_H_
