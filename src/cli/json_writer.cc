// SPDX-License-Identifier: MIT
#include "cli/json_writer.h"

#include <atomic>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "file/json_text.h"
#include "text/utf8.h"

namespace mainarch::cli {
namespace {

std::atomic<bool> any_printed{false};

std::string Quoted(absl::string_view text) { return file::JsonString(text::RepairUtf8(text)); }

}  // namespace

void JsonWriter::Separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) text_ += ", ";
  has_items_.back() = true;
}

JsonWriter& JsonWriter::Begin(char bracket) {
  Separate();
  text_ += bracket;
  has_items_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::End(char bracket) {
  text_ += bracket;
  has_items_.pop_back();
  return *this;
}

JsonWriter& JsonWriter::Key(absl::string_view key) {
  Separate();
  absl::StrAppend(&text_, Quoted(key), ": ");
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Raw(absl::string_view json) {
  Separate();
  absl::StrAppend(&text_, json);
  return *this;
}

JsonWriter& JsonWriter::Value(absl::string_view text) { return Raw(Quoted(text)); }

JsonWriter& JsonWriter::Value(double number) {
  return std::isfinite(number) ? Raw(absl::StrFormat("%.9g", number)) : Null();
}

void JsonWriter::Print() const {
  any_printed = true;
  std::printf("%s\n", text_.c_str());
}

bool JsonWriter::printed() { return any_printed; }

}  // namespace mainarch::cli
