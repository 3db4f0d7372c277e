// SPDX-License-Identifier: MIT
#include "text/char_class.h"

#include <algorithm>

namespace mainarch::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

#include "text/unicode_ranges.inc"

// The block that every run of 256 letters uses: most of CJK and Hangul.
constexpr uint16_t kAllLetters = 1;

}  // namespace

CharClasses::CharClasses() {
  blocks_.reserve(320);
  blocks_.resize(2);
  blocks_[0].fill(0);
  blocks_[kAllLetters].fill(kLetter);
  block_of_.fill(0);
  for (const Range& r : kLetters) Add(r.first, r.last, kLetter);
  for (const Range& r : kMarks) Add(r.first, r.last, kMark);
  for (const Range& r : kNumbers) Add(r.first, r.last, kNumber);
  for (const Range& r : kSpaces) Add(r.first, r.last, kSpace);
  for (const Range& r : kComposingPoints) Add(r.first, r.last, kComposing);
  for (const Range& r : kReorderedMarks) Add(r.first, r.last, kReordered);
  Add('\n', '\n', kNewline);
  Add('\r', '\r', kNewline);
  std::copy_n(blocks_[block_of_[0]].begin(), ascii_.size(), ascii_.begin());
}

void CharClasses::Add(uint32_t first, uint32_t last, uint8_t bits) {
  for (uint32_t block = first >> 8; block <= last >> 8; ++block) {
    const uint32_t begin = std::max(first, block << 8);
    const uint32_t end = std::min(last, (block << 8) + 255);
    if (bits == kLetter && end - begin == 255) {
      block_of_[block] = kAllLetters;
      continue;
    }
    if (block_of_[block] <= kAllLetters) {
      blocks_.push_back(blocks_[block_of_[block]]);
      block_of_[block] = static_cast<uint16_t>(blocks_.size() - 1);
    }
    Block& cells = blocks_[block_of_[block]];
    for (uint32_t point = begin; point <= end; ++point) cells[point & 0xFF] |= bits;
  }
}

}  // namespace mainarch::text
