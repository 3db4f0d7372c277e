// SPDX-License-Identifier: MIT
//
// UTF-8: the repair of text that is not UTF-8, and inline steps through text that is. Nothing here
// knows about tokens. All functions are pure.
#ifndef MAINARCH_TEXT_UTF8_H_
#define MAINARCH_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace mainarch::text {

inline constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the front of some bytes.
enum class Utf8Head {
  kValid,       // a whole character of `length` bytes
  kInvalid,     // `length` bytes that can start no character: one U+FFFD
  kIncomplete,  // all the bytes given, `length` of them, start a character that needs more
};

struct Utf8Step {
  Utf8Head head;
  size_t length;
};

// Looks at the front of `bytes`, which is not empty. Invalid lengths are the maximal subparts of
// the Unicode standard (section 3.9), as in Rust's String::from_utf8_lossy.
Utf8Step StepUtf8(absl::string_view bytes);

bool IsValidUtf8(absl::string_view bytes);

// Each maximal invalid subpart, and an incomplete character at the end, becomes one U+FFFD.
std::string RepairUtf8(absl::string_view bytes);

// The code point at `at`, which must start a character of valid UTF-8; `length` is 1 to 4.
inline uint32_t DecodeValid(const char* at, size_t* length) {
  const auto* p = reinterpret_cast<const unsigned char*>(at);
  if (p[0] < 0x80) {
    *length = 1;
    return p[0];
  }
  if (p[0] < 0xE0) {
    *length = 2;
    return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  }
  if (p[0] < 0xF0) {
    *length = 3;
    return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
  *length = 4;
  return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// `point` must be a Unicode scalar value.
void AppendUtf8(uint32_t point, std::string* out);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_UTF8_H_
