// SPDX-License-Identifier: MIT
//
// Byte-pair encoding: the merges of a model, and the engine that applies them to the symbols of one
// piece of text: again and again the pair of neighbours with the lowest rank, the leftmost of
// equals. Immutable once built, and may be shared by threads.
#ifndef MAINARCH_TEXT_BPE_H_
#define MAINARCH_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "text/huge_allocator.h"
#include "text/vocabulary.h"

namespace mainarch::text {

inline constexpr uint32_t kNoRank = UINT32_MAX;

class Merges {
 public:
  Merges() = default;

  // Room for `count` merges. Call once, first.
  Status Begin(size_t count);
  // Which token each byte is, so that Encode can be used; before or behind the merges. False when a
  // byte that text can have has none.
  bool TakeBytes(const Vocabulary& vocabulary);
  // The next merge, whose rank is the number of ranks before it. The ids must be of the vocabulary;
  // a pair that is there already is refused. With `same_rank` it has the rank of the merge before
  // it, which must make the same token.
  Status Add(uint32_t left, uint32_t right, uint32_t merged, bool same_rank = false);
  // Fetches ahead of an Add. Always inline: gcc 12 takes a function that does no more for one
  // without effect, and leaves out the call.
  [[gnu::always_inline]] void Prefetch(uint32_t left, uint32_t right) const {
    __builtin_prefetch(&slots_[Hash(Pack(left, right)) >> shift_]);
  }

  size_t size() const { return merged_.size(); }

  // Appends the tokens of `piece`, whose symbols are bytes. Time is n log n in its length.
  void Encode(absl::string_view piece, std::vector<uint32_t>* out) const;
  // Appends what the symbols, tokens themselves, are merged to. Time as before.
  void EncodeSymbols(absl::Span<const uint32_t> symbols, std::vector<uint32_t>* out) const;

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = kNoRank;
    uint32_t unused = 0;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;

  static uint64_t Pack(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << 32 | right;
  }
  static uint64_t Hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15u;
    return (pair ^ pair >> 32) * 0xD6E8FEB86659FD93u;
  }

  uint32_t RankOf(uint32_t left, uint32_t right) const;
  uint32_t RankOfBytes(unsigned char left, unsigned char right) const {
    return byte_ranks_[left * 256u + right];
  }
  // Of `count` symbols, and of ranks[i] of the pair (i, i + 1); the last is kNoRank. Both have room
  // for one more, and are written over.
  void MergeShort(uint32_t* ids, uint32_t* ranks, size_t count, std::vector<uint32_t>* out) const;
  // Of symbols that `id_at` gives, and the rank of the pair at i.
  template <class IdAt, class RankAt>
  void MergeLong(uint32_t count, const IdAt& id_at, const RankAt& rank_at,
                 std::vector<uint32_t>* out) const;

  HugeVector<Slot> slots_;        // open addressing, a power of two
  int shift_ = 63;                // 64 - log2(slots)
  std::vector<uint32_t> merged_;  // the token a merge makes, by rank
  std::array<uint32_t, 256> byte_ids_{};
  std::vector<int16_t> byte_of_id_;   // the inverse, as far as it goes; -1: not a single byte
  std::vector<uint32_t> byte_ranks_;  // [256][256]: the rank of a pair of single bytes
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_BPE_H_
