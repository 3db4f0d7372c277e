// SPDX-License-Identifier: MIT
//
// Numbers that people type: decimal digits alone. absl::SimpleAtoi also takes signs, spaces around and
// leading zeros, so that one thing has many spellings, and a slip of the pen passes for a value.
#ifndef MAINARCH_BASE_DECIMAL_H_
#define MAINARCH_BASE_DECIMAL_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace mainarch {

// Nothing when `text` is empty, holds anything but digits, begins with a 0 that is not all of it, or is
// beyond 64 bits.
inline std::optional<uint64_t> ParseDecimal(absl::string_view text) {
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value)) {
      return std::nullopt;
    }
  }
  return value;
}

// Where `part`, a view into `whole`, begins, as a message says it: the first character is 1.
inline size_t CharacterOf(absl::string_view whole, absl::string_view part) {
  return static_cast<size_t>(part.data() - whole.data()) + 1;
}

}  // namespace mainarch

#endif  // MAINARCH_BASE_DECIMAL_H_
