// SPDX-License-Identifier: MIT
//
// The split patterns of Qwen, Llama 3 and GPT-2 by hand, many times as fast as an engine. The
// tests hold them against ours (regex.h) and the package on random text.
#ifndef MAINARCH_TEXT_SCANNER_H_
#define MAINARCH_TEXT_SCANNER_H_

#include "absl/strings/string_view.h"
#include "text/char_class.h"

namespace mainarch::text {

inline constexpr absl::string_view kQwen3Pattern =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)re"
    R"re(\s*[\r\n]+|\s+(?!\S)|\s+)re";
inline constexpr absl::string_view kQwen35Pattern =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
// Llama 3, GLM-4, MiniMax and others: Qwen's, but for numbers of up to three digits.
inline constexpr absl::string_view kLlama3Pattern =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
// What ByteLevel does with use_regex.
inline constexpr absl::string_view kGpt2Pattern =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";

// Gives the length in bytes of the first piece of a text, valid UTF-8 and not empty. Every
// character belongs to some piece.
using Scanner = size_t (*)(absl::string_view text, const CharClasses& classes);

// The scanner of a pattern, or null.
Scanner FindScanner(absl::string_view pattern);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_SCANNER_H_
