// SPDX-License-Identifier: MIT
//
// Which code points are letters, marks, numbers and white space: the facts that the split patterns
// and NFC's quick check ask for. The data is that of the `tokenizers` package (unicode_ranges.inc),
// not that of a library of this machine, so that ids do not change with the distribution.
// An object is immutable once made, and may be shared by threads.
#ifndef MAINARCH_TEXT_CHAR_CLASS_H_
#define MAINARCH_TEXT_CHAR_CLASS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "text/char_set.h"
#include "text/utf8.h"

namespace mainarch::text {

enum CharClass : uint8_t {
  kLetter = 1,      // \p{L}
  kMark = 2,        // \p{M}
  kNumber = 4,      // \p{N}
  kSpace = 8,       // \s, the White_Space property
  kNewline = 16,    // \r and \n, which are white space too
  kComposing = 32,  // NFC_Quick_Check is not Yes
  kReordered = 64   // NFC sorts it among other marks
};

class CharClasses {
 public:
  CharClasses();
  // The one that all share: making it takes a millisecond.
  static const CharClasses& Shared();

  // The CharClass bits of a code point up to U+10FFFF.
  uint8_t Of(uint32_t point) const { return blocks_[block_of_[point >> 8]][point & 0xFF]; }
  // Of the character at `at` in valid UTF-8.
  uint8_t At(const char* at, size_t* length) const {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte < 0x80) {
      *length = 1;
      return ascii_[byte];
    }
    return Of(DecodeValid(at, length));
  }

 private:
  using Block = std::array<uint8_t, 256>;  // the classes of 256 code points

  void AddSet(const PointRanges& set, uint8_t bits);
  void Add(uint32_t first, uint32_t last, uint8_t bits);

  std::array<uint16_t, 0x1100> block_of_;  // by code point / 256
  std::vector<Block> blocks_;
  std::array<uint8_t, 128> ascii_;
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHAR_CLASS_H_
