// SPDX-License-Identifier: MIT
//
// Reads what is of use here in tokenizer_config.json: the names of a few tokens and the chat
// template. All other keys are ignored; the tokens themselves come from tokenizer.json.
#ifndef MAINARCH_TEXT_TOKENIZER_CONFIG_H_
#define MAINARCH_TEXT_TOKENIZER_CONFIG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::text {

struct TokenizerConfig {
  std::string bos_token;  // empty: none
  std::string eos_token;
  std::string pad_token;
  std::string chat_template;  // Jinja; the one named "default" when there are several
};

// Errors say "<field>: .."; the caller puts the file's name before them.
StatusOr<TokenizerConfig> ReadTokenizerConfig(absl::string_view json);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKENIZER_CONFIG_H_
