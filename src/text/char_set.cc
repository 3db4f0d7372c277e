// SPDX-License-Identifier: MIT
#include "text/char_set.h"

#include <algorithm>

namespace mainarch::text {

PointRanges::PointRanges(absl::Span<const PointRange> ranges)
    : ranges_(ranges.begin(), ranges.end()) {
  Normalize();
}

void PointRanges::Add(const PointRanges& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

void PointRanges::Normalize() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const PointRange& a, const PointRange& b) { return a.first < b.first; });
  size_t kept = 0;
  for (const PointRange& range : ranges_) {
    if (kept > 0 && range.first <= ranges_[kept - 1].last + 1) {
      ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
}

PointRanges PointRanges::Complement() const {
  PointRanges out;
  uint32_t next = 0;
  for (const PointRange& range : ranges_) {
    if (range.first > next) out.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastPoint) out.Add(next, kLastPoint);
  return out;
}

PointRanges PointRanges::Intersection(const PointRanges& other) const {
  PointRanges out;
  for (size_t i = 0, k = 0; i < ranges_.size() && k < other.ranges_.size();) {
    const PointRange& a = ranges_[i];
    const PointRange& b = other.ranges_[k];
    const uint32_t first = std::max(a.first, b.first);
    const uint32_t last = std::min(a.last, b.last);
    if (first <= last) out.Add(first, last);
    if (a.last < b.last) {
      ++i;
    } else {
      ++k;
    }
  }
  return out;
}

bool PointRanges::Has(uint32_t point) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), point,
                       [](uint32_t value, const PointRange& range) { return value < range.first; });
  return after != ranges_.begin() && point <= (after - 1)->last;
}

CharSet::CharSet(const PointRanges& ranges) {
  constexpr uint16_t kEmpty = 0, kFull = 1;
  blocks_.resize(2);
  blocks_[kEmpty].fill(0);
  blocks_[kFull].fill(UINT64_MAX);
  block_of_.fill(kEmpty);
  for (const PointRange& range : ranges.ranges()) {
    for (uint32_t block = range.first >> 8; block <= range.last >> 8; ++block) {
      const uint32_t begin = std::max(range.first, block << 8);
      const uint32_t end = std::min(range.last, (block << 8) + 255);
      if (end - begin == 255) {
        block_of_[block] = kFull;
        continue;
      }
      if (block_of_[block] == kEmpty) {
        block_of_[block] = static_cast<uint16_t>(blocks_.size());
        blocks_.push_back(blocks_[kEmpty]);
      }
      Block& bits = blocks_[block_of_[block]];
      for (uint32_t p = begin; p <= end; ++p) bits[p >> 6 & 3] |= uint64_t{1} << (p & 63);
    }
  }
  const Block& first = blocks_[block_of_[0]];
  ascii_ = {first[0], first[1]};
}

}  // namespace mainarch::text
