// SPDX-License-Identifier: MIT
#include "cli/json_mode.h"

#include <atomic>

#include "cli/json_writer.h"

namespace mainarch::cli {
namespace {

// Atomic: the thread that ends a command which was interrupted looks at it.
std::atomic<bool> json_wanted{false};

}  // namespace

bool HasJsonWord(absl::Span<const std::string> words) {
  bool has = false;
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--json") has = true;
    if (word == "--no-json") has = false;
  }
  return has;
}

void SetJsonWanted(bool wanted) { json_wanted = wanted; }
bool JsonWanted() { return json_wanted; }

void PrintJsonHelp(absl::string_view text) {
  JsonWriter out;
  out.BeginObject().Field("help", text).EndObject().Print();
}

void PrintJsonError(const JsonError& error) {
  if (!JsonWanted() || JsonWriter::printed()) return;
  JsonWriter out;
  out.BeginObject().Key("error").BeginObject().Field("exit_code", error.exit_code);
  if (error.code != 0) out.Field("code", error.code);
  out.Field("message", error.message);
  if (!error.hint.empty()) out.Field("hint", error.hint);
  out.EndObject().EndObject().Print();
}

}  // namespace mainarch::cli
