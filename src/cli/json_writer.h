// SPDX-License-Identifier: MIT
//
// Writes JSON: objects and arrays are opened and closed by the caller, commas and escapes are ours.
// Nothing is built in memory but the text.
#ifndef MAINARCH_CLI_JSON_WRITER_H_
#define MAINARCH_CLI_JSON_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mainarch::cli {

class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(*out) {}

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }
  void Key(absl::string_view key) {
    Separate();
    Quote(key);
    out_ += ':';
    after_key_ = true;
  }
  void Value(absl::string_view text) {
    Separate();
    Quote(text);
  }
  void Value(const char* text) { Value(absl::string_view(text)); }
  void Value(const std::string& text) { Value(absl::string_view(text)); }
  void Value(uint64_t number) {
    Separate();
    absl::StrAppend(&out_, number);
  }
  void Value(bool value) {
    Separate();
    out_ += value ? "true" : "false";
  }
  template <class T>
  void Pair(absl::string_view key, const T& value) {
    Key(key);
    Value(value);
  }

 private:
  void Open(char c) {
    Separate();
    out_ += c;
    first_ = true;
  }
  void Close(char c) {
    out_ += c;
    first_ = false;
  }
  void Separate() {
    if (!first_ && !after_key_) out_ += ',';
    first_ = after_key_ = false;
  }
  void Quote(absl::string_view text) {
    constexpr char kHex[] = "0123456789abcdef";
    out_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += c;
      } else if (byte < 0x20 || byte >= 0x7f) {  // sysfs is ASCII; anything else as its code
        out_ += "\\u00";
        out_ += kHex[byte >> 4];
        out_ += kHex[byte & 15];
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  std::string& out_;
  bool first_ = true;
  bool after_key_ = false;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_JSON_WRITER_H_
