// SPDX-License-Identifier: MIT
//
// How large the tree of a json text can become, before any of it is built: simdjson takes up to 16 bytes
// for a value that has two in the text, and 4 for each mark. A file of junk is refused for what it would
// cost, not after it has cost it.
#ifndef MAINARCH_BASE_JSON_MARKS_H_
#define MAINARCH_BASE_JSON_MARKS_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace mainarch {

// The commas, colons and opening brackets of `text`, those within strings too: at least as many, less
// one, as it has values and keys.
size_t CountJsonMarks(absl::string_view text);

}  // namespace mainarch

#endif  // MAINARCH_BASE_JSON_MARKS_H_
