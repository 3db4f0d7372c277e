// SPDX-License-Identifier: MIT
#include "text/char_class.h"

#include <algorithm>

#include "text/unicode_property.h"

namespace mainarch::text {
namespace {

// The block that every run of 256 letters uses: most of CJK and Hangul.
constexpr uint16_t kAllLetters = 1;

}  // namespace

CharClasses::CharClasses() {
  blocks_.reserve(320);
  blocks_.resize(2);
  blocks_[0].fill(0);
  blocks_[kAllLetters].fill(kLetter);
  block_of_.fill(0);
  AddSet(*PropertySet("L"), kLetter);  // first: see kAllLetters
  AddSet(*PropertySet("M"), kMark);
  AddSet(*PropertySet("N"), kNumber);
  AddSet(SpaceSet(), kSpace);
  AddSet(ComposingSet(), kComposing);
  AddSet(ReorderedSet(), kReordered);
  Add('\n', '\n', kNewline);
  Add('\r', '\r', kNewline);
  std::copy_n(blocks_[block_of_[0]].begin(), ascii_.size(), ascii_.begin());
}

const CharClasses& CharClasses::Shared() {
  static const CharClasses& classes = *new CharClasses;
  return classes;
}

void CharClasses::AddSet(const PointRanges& set, uint8_t bits) {
  for (const PointRange& range : set.ranges()) Add(range.first, range.last, bits);
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
