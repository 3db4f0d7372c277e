// SPDX-License-Identifier: MIT
//
// The split patterns of vocabularies that name them and do not have them with them: GGUF's
// tokenizer.ggml.pre. All functions are pure.
#ifndef MAINARCH_TEXT_SPLIT_PATTERNS_H_
#define MAINARCH_TEXT_SPLIT_PATTERNS_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace mainarch::text {

struct NamedSplit {
  absl::Span<const absl::string_view> patterns;  // one after another, every match isolated
  bool ignore_merges = false;                    // a piece that is a token is that token
};

// False for a name that is not known.
bool FindNamedSplit(absl::string_view name, NamedSplit* out);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_SPLIT_PATTERNS_H_
