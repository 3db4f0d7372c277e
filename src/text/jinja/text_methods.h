// SPDX-License-Identifier: MIT
//
// Methods of str that filters need, too.
#ifndef MAINARCH_TEXT_JINJA_TEXT_METHODS_H_
#define MAINARCH_TEXT_JINJA_TEXT_METHODS_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

enum class Align { kLeft, kRight, kCenter };

// Without white space, or without the characters of *set, at its ends. Shares the text's bytes.
Value Stripped(const Value& text, bool left, bool right, const Value* set);
// At most `count` times; -1: always.
Value Replaced(Heap* heap, absl::string_view text, absl::string_view from, absl::string_view to,
               int64_t count);
// As str.splitlines().
std::vector<absl::string_view> Lines(absl::string_view text, bool keep_ends);
// To `width` code points with `fill`, which is one.
Value Padded(Heap* heap, const Value& text, int64_t width, absl::string_view fill, Align align);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_TEXT_METHODS_H_
