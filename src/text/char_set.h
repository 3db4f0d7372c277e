// SPDX-License-Identifier: MIT
//
// Sets of code points: as ranges while a pattern is read, and as a table of bits to ask often.
#ifndef MAINARCH_TEXT_CHAR_SET_H_
#define MAINARCH_TEXT_CHAR_SET_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace mainarch::text {

inline constexpr uint32_t kLastPoint = 0x10FFFF;

struct PointRange {
  uint32_t first;
  uint32_t last;
};

// Ranges in rising order that do not touch, once Normalize has been called.
class PointRanges {
 public:
  PointRanges() = default;
  explicit PointRanges(absl::Span<const PointRange> ranges);

  void Add(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  void Add(const PointRanges& other);
  void Normalize();

  // Of normal ones, and normal themselves.
  PointRanges Complement() const;
  PointRanges Intersection(const PointRanges& other) const;
  bool Has(uint32_t point) const;
  bool empty() const { return ranges_.empty(); }
  absl::Span<const PointRange> ranges() const { return ranges_; }

 private:
  std::vector<PointRange> ranges_;
};

// Immutable once made.
class CharSet {
 public:
  explicit CharSet(const PointRanges& ranges);

  bool Has(uint32_t point) const {
    const Block& block = blocks_[block_of_[point >> 8]];
    return (block[point >> 6 & 3] >> (point & 63) & 1) != 0;
  }
  bool HasAscii(unsigned char byte) const { return (ascii_[byte >> 6] >> (byte & 63) & 1) != 0; }

 private:
  using Block = std::array<uint64_t, 4>;  // of 256 code points, a bit each

  std::array<uint64_t, 2> ascii_{};
  std::array<uint16_t, 0x1100> block_of_;  // by code point / 256
  std::vector<Block> blocks_;              // the first is empty, the second full
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHAR_SET_H_
