// SPDX-License-Identifier: MIT
//
// The byte-level spelling: tokenizer.json writes each byte of a token as one printable character
// (a space as U+0120), so that any bytes make a JSON string.
#ifndef MAINARCH_TEXT_BYTE_LEVEL_H_
#define MAINARCH_TEXT_BYTE_LEVEL_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace mainarch::text {

class ByteLevel {
 public:
  ByteLevel();

  // Writes the bytes that `spelling` stands for at `out`, which has room for spelling.size() of
  // them, and returns how many; -1 when a character stands for no byte.
  int64_t Decode(absl::string_view spelling, char* out) const;

  // The same as a string; text with a character that stands for no byte stands for itself whole,
  // as in the ByteLevel decoder of the `tokenizers` package.
  std::string DecodeOrKeep(absl::string_view spelling) const;

  // The character that `byte` is written as: U+0021 to U+0143.
  uint32_t PointOf(unsigned char byte) const { return point_of_[byte]; }

 private:
  static constexpr uint32_t kPoints = 0x144;  // one past the last character in use

  std::array<uint16_t, 256> point_of_;
  std::array<int16_t, kPoints> byte_of_;  // -1: stands for no byte
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_BYTE_LEVEL_H_
