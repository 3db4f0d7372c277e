// SPDX-License-Identifier: MIT
//
// The tags of a set-associative cache: which lines it holds, when they arrived, which are dirty.
// Replacement is first in, first out, but a line that was hit since it came is passed over once.
#ifndef MAINARCH_SIM_TIME_TAGS_H_
#define MAINARCH_SIM_TIME_TAGS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace mainarch::sim::timing {

class Tags {
 public:
  Tags() = default;
  // Lines in all, rounded down to a power of two of sets; `with_arrival`: keeps when lines arrive.
  Tags(uint64_t lines, int ways, bool with_arrival)
      : ways_(ways),
        sets_(std::bit_floor(std::max<uint64_t>(lines / static_cast<uint64_t>(ways), 1))),
        bits_(std::countr_zero(sets_)),
        tags_(sets_ * static_cast<uint64_t>(ways), kEmpty),
        hand_(sets_, 0),
        arrives_(with_arrival ? tags_.size() : 0, 0) {}

  static constexpr uint32_t kNone = ~uint32_t{0};

  // The place of a line, kNone when it is not there.
  uint32_t Find(uint64_t line) const {
    const uint32_t base = SetOf(line) * static_cast<uint32_t>(ways_), tag = TagOf(line);
    uint32_t found = 0;  // no early way out: the compiler makes vectors of it
    for (int i = 0; i < ways_; ++i) {
      found |= static_cast<uint32_t>((tags_[base + static_cast<uint32_t>(i)] & kTagMask) == tag) << i;
    }
    return found == 0 ? kNone : base + static_cast<uint32_t>(std::countr_zero(found));
  }
  void Touch(uint32_t place) { tags_[place] |= kUsed; }
  bool dirty(uint32_t place) const { return tags_[place] & kDirty; }
  // False when it was dirty before.
  bool MakeDirty(uint32_t place) {
    const bool was = tags_[place] & kDirty;
    tags_[place] |= kDirty;
    return !was;
  }
  void Clean(uint32_t place) { tags_[place] &= ~kDirty; }
  void Drop(uint32_t place) { tags_[place] = kEmpty; }

  // Puts a line in, which is not there; *evicted: a dirty line had to go, and which.
  uint32_t Put(uint64_t line, bool* evicted, uint64_t* evicted_line) {
    const uint32_t set = SetOf(line), base = set * static_cast<uint32_t>(ways_);
    uint8_t& hand = hand_[set];
    uint32_t place = base + hand;
    for (int i = 0; i < ways_ && (tags_[place] & kUsed) && tags_[place] != kEmpty; ++i) {
      tags_[place] &= ~kUsed;
      Advance(&hand);
      place = base + hand;
    }
    Advance(&hand);
    const uint32_t old = tags_[place];
    *evicted = old != kEmpty && (old & kDirty) != 0;
    if (*evicted) *evicted_line = LineOf(set, old & kTagMask);
    tags_[place] = TagOf(line);
    return place;
  }

  // Arrival of a line in clocks; 0: long ago.
  int64_t arrives(uint32_t place) const { return arrives_[place]; }
  void set_arrives(uint32_t place, int64_t at) { arrives_[place] = at; }

  void Clear() {
    std::fill(tags_.begin(), tags_.end(), kEmpty);
    std::fill(hand_.begin(), hand_.end(), uint8_t{0});
  }
  size_t places() const { return tags_.size(); }

 private:
  static constexpr uint32_t kDirty = 1u << 31, kUsed = 1u << 30, kTagMask = (1u << 30) - 1;
  static constexpr uint32_t kEmpty = kTagMask;  // clean, unused, a tag that no line has

  uint32_t SetOf(uint64_t line) const {
    const uint64_t high = line >> bits_;
    return static_cast<uint32_t>((line ^ high ^ high >> bits_) & (sets_ - 1));
  }
  uint32_t TagOf(uint64_t line) const { return static_cast<uint32_t>(line >> bits_) & kTagMask; }
  uint64_t LineOf(uint32_t set, uint32_t tag) const {
    const uint64_t high = tag;
    return high << bits_ | ((set ^ high ^ high >> bits_) & (sets_ - 1));
  }
  void Advance(uint8_t* hand) const { *hand = static_cast<uint8_t>(*hand + 1 == ways_ ? 0 : *hand + 1); }

  int ways_ = 1;
  uint64_t sets_ = 1;
  int bits_ = 0;
  std::vector<uint32_t> tags_;
  std::vector<uint8_t> hand_;
  std::vector<int64_t> arrives_;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_TAGS_H_
