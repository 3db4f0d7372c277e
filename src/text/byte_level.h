// SPDX-License-Identifier: MIT
//
// The byte-level spelling: tokenizer.json writes each byte of a token as one printable character
// (a space as U+0120), so that any bytes make a JSON string.
#ifndef MAINARCH_TEXT_BYTE_LEVEL_H_
#define MAINARCH_TEXT_BYTE_LEVEL_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace mainarch::text {

class ByteLevel {
 public:
  ByteLevel();

  // Writes the bytes that `spelling` stands for at `out`, which has room for spelling.size() of
  // them, and returns how many; -1 when a character stands for no byte.
  int64_t Decode(absl::string_view spelling, char* out) const;

  // As far as characters stand for bytes: returns how many bytes there are, and in `*taken` how
  // much of the spelling they take.
  size_t DecodePrefix(absl::string_view spelling, char* out, size_t* taken) const;

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

inline size_t ByteLevel::DecodePrefix(absl::string_view spelling, char* out, size_t* taken) const {
  const auto* p = reinterpret_cast<const unsigned char*>(spelling.data());
  const auto* const begin = p;
  const auto* const end = p + spelling.size();
  char* const first = out;
  // Whether every byte of a word is '!' to '~', which stand for themselves: most do by far.
  const auto plain = [](auto word) {
    using Word = decltype(word);
    constexpr Word kOnes = static_cast<Word>(0x0101010101010101u);
    return ((word | (word + kOnes) | (word - kOnes * '!')) & kOnes * 0x80) == 0;
  };
  while (p < end) {
    uint64_t eight;
    uint32_t four;
    if (end - p >= 8 && (std::memcpy(&eight, p, 8), plain(eight))) {
      std::memcpy(out, &eight, 8);
      p += 8;
      out += 8;
      continue;
    }
    if (end - p >= 4 && (std::memcpy(&four, p, 4), plain(four))) {
      std::memcpy(out, &four, 4);
      p += 4;
      out += 4;
      continue;
    }
    uint32_t point = *p;
    size_t length = 1;
    if (point >= 0x80) {
      // Characters of two bytes with these leads are the only ones in the table.
      if (point < 0xC2 || point > 0xC5 || p + 1 == end) break;
      point = (point & 0x1F) << 6 | (p[1] & 0x3F);
      length = 2;
    }
    if (point >= kPoints || byte_of_[point] < 0) break;
    *out++ = static_cast<char>(byte_of_[point]);
    p += length;
  }
  *taken = static_cast<size_t>(p - begin);
  return static_cast<size_t>(out - first);
}

inline int64_t ByteLevel::Decode(absl::string_view spelling, char* out) const {
  size_t taken;
  const size_t length = DecodePrefix(spelling, out, &taken);
  return taken == spelling.size() ? static_cast<int64_t>(length) : -1;
}

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_BYTE_LEVEL_H_
