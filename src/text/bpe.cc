// SPDX-License-Identifier: MIT
#include "text/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>

namespace mainarch::text {
namespace {

// Below this many bytes scanning all ranks for the lowest beats a heap.
constexpr size_t kShortPiece = 64;
constexpr size_t kMaxMerges = size_t{1} << 23;
constexpr size_t kMaxProbe = 1024;  // as in vocabulary.cc

}  // namespace

Status Merges::Begin(size_t count) {
  if (count > kMaxMerges) {
    return Error(Code::kBadModel, count, " merges are over the limit ", kMaxMerges);
  }
  int bits = 4;
  while ((size_t{1} << bits) < count + count / 2) ++bits;
  slots_.assign(size_t{1} << bits, Slot{});
  shift_ = 64 - bits;
  merged_.reserve(count);
  return OkStatus();
}

bool Merges::TakeBytes(const Vocabulary& vocabulary) {
  byte_ranks_.assign(size_t{256} * 256, kNoRank);
  bool all = true;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    const uint32_t id = vocabulary.Find(absl::string_view(&text, 1));
    byte_ids_[byte] = id;
    // 0xC0, 0xC1 and 0xF5 up stand in no UTF-8.
    const bool wanted = byte < 0xF5 && byte != 0xC0 && byte != 0xC1;
    all = all && (id != kNoToken || !wanted);
    if (id == kNoToken) continue;
    if (id >= byte_of_id_.size()) byte_of_id_.resize(id + 1, -1);
    byte_of_id_[id] = static_cast<int16_t>(byte);
  }
  if (merged_.empty()) return all;
  for (size_t pair = 0; pair < byte_ranks_.size(); ++pair) {
    const uint32_t left = byte_ids_[pair >> 8], right = byte_ids_[pair & 255];
    if (left != kNoToken && right != kNoToken) byte_ranks_[pair] = RankOf(left, right);
  }
  return all;
}

Status Merges::Add(uint32_t left, uint32_t right, uint32_t merged, bool same_rank) {
  const uint64_t pair = Pack(left, right);
  const size_t mask = slots_.size() - 1;
  size_t at = Hash(pair) >> shift_;
  for (size_t probe = 0; probe < kMaxProbe; ++probe, at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.pair == kNoPair) {
      slot.pair = pair;
      if (!same_rank) merged_.push_back(merged);
      slot.rank = static_cast<uint32_t>(merged_.size() - 1);
      const size_t bytes = byte_of_id_.size();
      if (left < bytes && right < bytes && byte_of_id_[left] >= 0 && byte_of_id_[right] >= 0) {
        byte_ranks_[static_cast<size_t>(byte_of_id_[left] * 256 + byte_of_id_[right])] = slot.rank;
      }
      return OkStatus();
    }
    if (slot.pair == pair) {
      return Error(Code::kBadModel, "is the same pair as merge ", slot.rank);
    }
  }
  return Error(Code::kBadModel, "makes a hash table with probes over ", kMaxProbe);
}

uint32_t Merges::RankOf(uint32_t left, uint32_t right) const {
  const uint64_t pair = Pack(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t at = Hash(pair) >> shift_;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.pair == pair) return slot.rank;
    if (slot.pair == kNoPair) return kNoRank;
  }
}

template <class IdAt, class RankAt>
void Merges::MergeLong(uint32_t count, const IdAt& id_at, const RankAt& rank_at,
                       std::vector<uint32_t>* out) const {
  struct Symbol {
    uint32_t id;
    uint32_t rank;  // of the pair with the next symbol; a heap entry of another rank is stale
    uint32_t previous;
    uint32_t next;
  };
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<Symbol> symbols(count);
  std::vector<uint64_t> first;  // rank << 32 | place: the lowest rank, leftmost of equals
  for (uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const uint32_t rank = last ? kNoRank : rank_at(i);
    symbols[i] = {id_at(i), rank, i == 0 ? kNone : i - 1, last ? kNone : i + 1};
    if (rank != kNoRank) first.push_back(static_cast<uint64_t>(rank) << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>> queue(
      std::greater<uint64_t>(), std::move(first));
  const auto rank_pair = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next == kNone ? kNoRank : RankOf(symbol.id, symbols[symbol.next].id);
    if (symbol.rank != kNoRank) queue.push(static_cast<uint64_t>(symbol.rank) << 32 | at);
  };
  while (!queue.empty()) {
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    const auto at = static_cast<uint32_t>(queue.top());
    queue.pop();
    Symbol& symbol = symbols[at];
    if (symbol.rank != rank) continue;
    Symbol& eaten = symbols[symbol.next];
    symbol.id = merged_[rank];
    symbol.next = eaten.next;
    eaten.rank = kNoRank;
    if (symbol.next != kNone) symbols[symbol.next].previous = at;
    rank_pair(at);
    if (symbol.previous != kNone) rank_pair(symbol.previous);
  }
  for (uint32_t at = 0; at != kNone; at = symbols[at].next) out->push_back(symbols[at].id);
}

void Merges::Encode(absl::string_view piece, std::vector<uint32_t>* out) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  const size_t count = piece.size();
  if (count == 0) return;
  if (count > kShortPiece) {
    MergeLong(
        static_cast<uint32_t>(count), [&](size_t i) { return byte_ids_[bytes[i]]; },
        [&](size_t i) { return RankOfBytes(bytes[i], bytes[i + 1]); }, out);
    return;
  }
  uint32_t ids[kShortPiece + 1];
  uint32_t ranks[kShortPiece + 1];
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[bytes[i]];
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = RankOfBytes(bytes[i], bytes[i + 1]);
  ranks[count - 1] = kNoRank;
  MergeShort(ids, ranks, count, out);
}

void Merges::EncodeSymbols(absl::Span<const uint32_t> symbols, std::vector<uint32_t>* out) const {
  const size_t count = symbols.size();
  if (count == 0) return;
  if (count > kShortPiece) {
    MergeLong(
        static_cast<uint32_t>(count), [&](size_t i) { return symbols[i]; },
        [&](size_t i) { return RankOf(symbols[i], symbols[i + 1]); }, out);
    return;
  }
  uint32_t ids[kShortPiece + 1];
  uint32_t ranks[kShortPiece + 1];
  std::copy(symbols.begin(), symbols.end(), ids);
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = RankOf(ids[i], ids[i + 1]);
  ranks[count - 1] = kNoRank;
  MergeShort(ids, ranks, count, out);
}

void Merges::MergeShort(uint32_t* ids, uint32_t* ranks, size_t count,
                        std::vector<uint32_t>* out) const {
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = merged_[ranks[best]];
    --count;
    const size_t moved = count - best - 1;
    std::memmove(ids + best + 1, ids + best + 2, moved * sizeof(ids[0]));
    std::memmove(ranks + best + 1, ranks + best + 2, moved * sizeof(ranks[0]));
    ranks[best] = best + 1 < count ? RankOf(ids[best], ids[best + 1]) : kNoRank;
    if (best > 0) ranks[best - 1] = RankOf(ids[best - 1], ids[best]);
  }
  out->insert(out->end(), ids, ids + count);
}

}  // namespace mainarch::text
