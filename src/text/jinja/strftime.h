// SPDX-License-Identifier: MIT
//
// A time as text: strftime in the C locale, whatever the process has set.
#ifndef MAINARCH_TEXT_JINJA_STRFTIME_H_
#define MAINARCH_TEXT_JINJA_STRFTIME_H_

#include <ctime>
#include <string>

#include "absl/strings/string_view.h"

namespace mainarch::text::jinja {

// The conversions of C and Python but for those of ISO weeks, and glibc's "-" ("%-d": no zero
// before). What is none of them stays as it is.
std::string FormatTime(absl::string_view format, const std::tm& time);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_STRFTIME_H_
