// SPDX-License-Identifier: MIT
//
// Reads what is of use here in tokenizer_config.json: the names of a few tokens, and added tokens that
// tokenizer.json may lack. Chat templates are chat_config.h's. All other keys are ignored.
#ifndef MAINARCH_TEXT_TOKENIZER_CONFIG_H_
#define MAINARCH_TEXT_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/added_tokens.h"

namespace mainarch::text {

struct TokenizerConfig {
  std::string bos_token;  // empty: none
  std::string eos_token;
  std::string pad_token;
  std::vector<AddedToken> added;  // added_tokens_decoder
  std::optional<bool> add_bos;    // add_bos_token; false for null
  std::optional<bool> add_eos;
};

// Errors say "<field>: .."; the caller puts the file's name before them.
StatusOr<TokenizerConfig> ReadTokenizerConfig(absl::string_view json);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKENIZER_CONFIG_H_
