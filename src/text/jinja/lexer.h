// SPDX-License-Identifier: MIT
//
// A template's text to tokens, with Jinja's rules of white space as transformers sets them:
// trim_blocks (the line's end behind a block tag or comment goes), lstrip_blocks (so does white
// space before one that begins a line), and "-" and "+" beside a tag.
#ifndef MAINARCH_TEXT_JINJA_LEXER_H_
#define MAINARCH_TEXT_JINJA_LEXER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::text::jinja {

enum class TokenKind {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // with its escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;
  std::string text;
};

// Always ends with kEnd. The source is valid UTF-8. Errors say "line N: ..".
StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_LEXER_H_
