// SPDX-License-Identifier: MIT
//
// The four Unicode normal forms. The `tokenizers` package normalises by Unicode 9, and so does
// this: characters younger than that are left in place (unicode_forms.inc).
#ifndef MAINARCH_TEXT_NORMAL_FORM_H_
#define MAINARCH_TEXT_NORMAL_FORM_H_

#include <string>

#include "absl/strings/string_view.h"
#include "text/char_class.h"

namespace mainarch::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `utf8` must be valid. Returns `utf8` itself when it is in the form (for others than NFC: when
// that is plain at once); otherwise fills `*storage` and returns a view of it. NFC of text that is
// in NFC already, as nearly all text is, costs one scan. Time is n log n at worst, for one endless
// run of combining marks.
absl::string_view Normalize(NormalForm form, absl::string_view utf8, const CharClasses& classes,
                            std::string* storage);

inline absl::string_view NormalizeNfc(absl::string_view utf8, const CharClasses& classes,
                                      std::string* storage) {
  return Normalize(NormalForm::kNfc, utf8, classes, storage);
}

// Rust's lower case, character by character.
std::string LowerCase(absl::string_view utf8);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_NORMAL_FORM_H_
