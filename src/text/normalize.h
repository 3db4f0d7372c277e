// SPDX-License-Identifier: MIT
//
// Unicode normal form C. Text that is in NFC already, as nearly all text is, costs one scan.
// The `tokenizers` package normalises by Unicode 9, and so does this: characters
// younger than that are left in place (unicode_ranges.inc), and utf8proc does the others.
#ifndef MAINARCH_TEXT_NORMALIZE_H_
#define MAINARCH_TEXT_NORMALIZE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "text/char_class.h"

namespace mainarch::text {

// `utf8` must be valid. Returns `utf8` itself when it is in NFC; otherwise fills `*storage` and
// returns a view of it. Time is n log n at worst, for one endless run of combining marks.
absl::string_view NormalizeNfc(absl::string_view utf8, const CharClasses& classes,
                               std::string* storage);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_NORMALIZE_H_
