// SPDX-License-Identifier: MIT
//
// What --json promises: one JSON object on stdout, whatever happens. Of help, wrong use, failures and
// interrupts there is one here; all else is written by the subcommands.
#ifndef MAINARCH_CLI_JSON_MODE_H_
#define MAINARCH_CLI_JSON_MODE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace mainarch::cli {

// Whether --json stands among the words before a "--", and no --no-json behind it.
bool HasJsonWord(absl::Span<const std::string> words);
// What was asked for, as far as it is known; options that were parsed know best.
void SetJsonWanted(bool wanted);
bool JsonWanted();

// {"help": ...}.
void PrintJsonHelp(absl::string_view text);

struct JsonError {
  int exit_code;
  int32_t code;  // MAINARCH_ERROR_*; 0: none of the library
  absl::string_view message;
  absl::string_view hint;  // empty: none
};
// {"error": {...}}, unless --json was not given or an object has been written already.
void PrintJsonError(const JsonError& error);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_JSON_MODE_H_
