// SPDX-License-Identifier: MIT
//
// Strings as Python has them: of code points, with Python's white space, case and printability. The
// data is generated (unicode_tables.inc), so that a prompt does not depend on a library of the
// machine. Texts are valid UTF-8. All functions are pure.
#ifndef MAINARCH_TEXT_JINJA_UNICODE_H_
#define MAINARCH_TEXT_JINJA_UNICODE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace mainarch::text::jinja {

// In code points.
size_t Length(absl::string_view text);
// The bytes before code point `index`, or the text's size when there are fewer.
size_t Offset(absl::string_view text, size_t index);

bool IsSpace(uint32_t point);
bool IsPrintable(uint32_t point);  // repr() writes it as it is
bool IsUpper(uint32_t point);
bool IsLower(uint32_t point);
bool IsAlpha(uint32_t point);
bool IsDecimal(uint32_t point);  // of the general category Nd

absl::string_view StripLeft(absl::string_view text);
absl::string_view StripRight(absl::string_view text);
// Of the code points in `set`.
absl::string_view StripLeft(absl::string_view text, absl::string_view set);
absl::string_view StripRight(absl::string_view text, absl::string_view set);

std::string Upper(absl::string_view text);
std::string Lower(absl::string_view text);
std::string Title(absl::string_view text);       // each word
std::string Capitalize(absl::string_view text);  // the first character, the rest lower
std::string SwapCase(absl::string_view text);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_UNICODE_H_
