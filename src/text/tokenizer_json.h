// SPDX-License-Identifier: MIT
//
// Reads tokenizer.json, the file of the Hugging Face `tokenizers` package, into the parts of a
// Tokenizer. A key or a value that would change ids, and that mainarch does not follow, is refused
// by name. "truncation" and "padding" are left to the caller (as `transformers` does). The bytes
// are not trusted.
#ifndef MAINARCH_TEXT_TOKENIZER_JSON_H_
#define MAINARCH_TEXT_TOKENIZER_JSON_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/byte_level.h"
#include "text/tokenizer_parts.h"

namespace mainarch::text {

// Bytes; the largest in use has 33e6 (262,000 tokens, 515,000 merges).
inline constexpr size_t kMaxTokenizerJson = size_t{64} << 20;
// Values and keys (base/json_marks.h): four times those of the largest in use.
inline constexpr size_t kMaxTokenizerValues = size_t{1} << 23;

// Errors say "<field>: .."; the caller puts the file's name before them.
Status ReadTokenizerJson(absl::string_view json, const ByteLevel& byte_level,
                         TokenizerParts* parts);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKENIZER_JSON_H_
