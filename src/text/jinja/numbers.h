// SPDX-License-Identifier: MIT
//
// Numbers from and to text as Python does it, whatever the locale. All functions are pure.
#ifndef MAINARCH_TEXT_JINJA_NUMBERS_H_
#define MAINARCH_TEXT_JINJA_NUMBERS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace mainarch::text::jinja {

// As int(text, base): white space, a sign and underscores may be there; base 0 goes by the prefix.
// False when it is no integer, or has more than 64 bits.
bool ParseInteger(absl::string_view text, int base, int64_t* out);

// As float(text).
bool ParseFloat(absl::string_view text, double* out);

// As repr(number): the shortest text that is read back as the same number.
std::string FloatText(double number);

// As format(number, ".<precision><type>") for the types e, f and g.
std::string FixedText(double number, char type, int precision);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_NUMBERS_H_
