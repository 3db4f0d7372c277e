// SPDX-License-Identifier: MIT
//
// The tokens of the model: id -> bytes, and bytes -> id by hash. A builder takes the tokens in any
// order and finds duplicates and holes; the result is immutable and may be shared by threads.
// Ids and byte counts fit 32 bits by the limits below.
#ifndef MAINARCH_TEXT_VOCABULARY_H_
#define MAINARCH_TEXT_VOCABULARY_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/status.h"
#include "text/byte_level.h"
#include "text/huge_allocator.h"

namespace mainarch::text {

inline constexpr uint32_t kNoToken = UINT32_MAX;
inline constexpr uint32_t kMaxTokens = 1u << 22;      // 15 times the largest vocabulary in use
inline constexpr uint32_t kMaxTokenBytes = 1u << 14;  // of one token

class Vocabulary {
 public:
  Vocabulary() = default;

  // Room for `count` tokens, a guess.
  void Reserve(size_t count);
  // Adds a token by its spelling: byte-level, or (null) its own bytes. `Finish` reports duplicates.
  Status Add(absl::string_view spelling, uint64_t id, const ByteLevel* byte_level);

  // Builds the index. An error names the token that stands twice or the id that has two tokens.
  Status Finish();

  // One past the largest id. Ids below it may be free (Has says so).
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  bool Has(uint32_t id) const { return id < tokens_.size() && tokens_[id].length != kFree; }

  absl::string_view Bytes(uint32_t id) const {
    if (!Has(id)) return {};
    return absl::string_view(arena_.data() + tokens_[id].offset, tokens_[id].length);
  }

  // The token of exactly these bytes, or kNoToken.
  uint32_t Find(absl::string_view bytes) const { return FindKey(KeyOf(bytes), bytes); }
  // The token of this spelling in the file, or kNoToken.
  uint32_t FindSpelling(absl::string_view spelling, const ByteLevel* byte_level) const;

  // Tokens whose spelling holds a character that stands for no byte: no text can produce them.
  const HashMap<std::string, uint32_t>& odd() const { return odd_; }

  // Find in two steps, so that a loader can prefetch: a key, then the token.
  struct Key {
    uint64_t key;
    uint64_t hash;
  };
  static Key KeyOf(absl::string_view bytes);
  // The same, faster, of bytes behind which kPadding more may be read.
  static constexpr size_t kPadding = 7;
  static Key KeyOfPadded(absl::string_view bytes);
  [[gnu::always_inline]] void Prefetch(const Key& key) const {  // see Merges::Prefetch
    __builtin_prefetch(&slots_[key.hash >> shift_]);
  }
  uint32_t FindKey(const Key& key, absl::string_view bytes) const;

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  static constexpr size_t kInline = 7;  // tokens up to here are compared in the slot alone

  struct Token {
    uint32_t offset = 0;
    uint32_t length = kFree;
  };
  struct Slot {
    uint64_t key = 0;  // KeyOf(..).key, which is never 0
    uint32_t id = kNoToken;
    uint32_t unused = 0;
  };

  static Key ShortKey(uint64_t low_bytes, size_t count) {
    const uint64_t key = low_bytes | static_cast<uint64_t>(count + 1) << 56;
    return {key, (key ^ key >> 32) * 0x9E3779B97F4A7C15u};
  }
  static Key LongKey(absl::string_view bytes);
  Status Insert(uint32_t id, const Key& key);

  HugeVector<char> arena_;  // the bytes of all tokens, then room and padding
  size_t arena_used_ = 0;
  HugeVector<Token> tokens_;            // by id
  HugeVector<Slot> slots_;              // open addressing, a power of two
  int shift_ = 63;                      // 64 - log2(slots)
  HashMap<std::string, uint32_t> odd_;  // see odd()
};

inline Vocabulary::Key Vocabulary::KeyOf(absl::string_view bytes) {
  // Up to 7 bytes: the bytes and their count, which is all there is to compare.
  const size_t n = bytes.size();
  const char* p = bytes.data();
  uint64_t key;
  if (n <= kInline) {
    key = 0;
    if (n >= 4) {
      uint32_t low, high;
      std::memcpy(&low, p, 4);
      std::memcpy(&high, p + n - 4, 4);
      key = low | static_cast<uint64_t>(high) << (8 * (n - 4));
    } else {
      for (size_t i = 0; i < n; ++i) {
        key |= static_cast<uint64_t>(static_cast<unsigned char>(p[i])) << (8 * i);
      }
    }
    return ShortKey(key, n);
  }
  return LongKey(bytes);
}

inline Vocabulary::Key Vocabulary::KeyOfPadded(absl::string_view bytes) {
  const size_t n = bytes.size();
  if (n > kInline) return LongKey(bytes);
  uint64_t word;
  std::memcpy(&word, bytes.data(), 8);
  return ShortKey(word & ((uint64_t{1} << (8 * n)) - 1), n);
}

// Over kInline bytes: a hash of 56 bits under a count no short token has; the bytes are compared on
// a hit.
inline Vocabulary::Key Vocabulary::LongKey(absl::string_view bytes) {
  const size_t n = bytes.size();
  const char* p = bytes.data();
  constexpr uint64_t kMultiplier = 0xD6E8FEB86659FD93u;  // odd, from a search for good mixers
  uint64_t mix = n * kMultiplier;
  size_t i = 0;
  for (; i + 8 < n; i += 8) {
    uint64_t word;
    std::memcpy(&word, p + i, 8);
    mix = (mix ^ word) * kMultiplier;
    mix ^= mix >> 29;
  }
  uint64_t word;
  std::memcpy(&word, p + n - 8, 8);
  mix = (mix ^ word) * kMultiplier;
  mix ^= mix >> 32;
  return {mix >> 8 | uint64_t{0xFF} << 56, mix * 0x9E3779B97F4A7C15u};
}

inline uint32_t Vocabulary::FindKey(const Key& key, absl::string_view bytes) const {
  if (slots_.empty()) return kNoToken;
  const size_t mask = slots_.size() - 1;
  for (size_t at = key.hash >> shift_;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.key == key.key && (bytes.size() <= kInline || Bytes(slot.id) == bytes)) return slot.id;
    if (slot.key == 0) return kNoToken;
  }
}

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_VOCABULARY_H_
