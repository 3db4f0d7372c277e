// SPDX-License-Identifier: MIT
#include "text/vocabulary.h"

#include <algorithm>

#include "absl/strings/escaping.h"

namespace mainarch::text {
namespace {

// Short enough for a message, and printable.
std::string Shown(absl::string_view bytes) { return absl::CHexEscape(bytes.substr(0, 64)); }

// A file can be made so that its tokens share a slot; a probe this long does not happen by chance.
constexpr size_t kMaxProbe = 1024;

}  // namespace

void Vocabulary::Reserve(size_t count) {
  count = std::min<size_t>(count, kMaxTokens);
  tokens_.reserve(count);
  arena_.resize(count * 8 + kPadding);  // about what a token of a large vocabulary has
}

Status Vocabulary::Add(absl::string_view spelling, uint64_t id, const ByteLevel* byte_level) {
  if (id >= kMaxTokens) {
    return Error(Code::kBadModel, "token \"", Shown(spelling), "\" has id ", id,
                 ", over the limit ", kMaxTokens - 1);
  }
  if (spelling.empty()) return Error(Code::kBadModel, "token ", id, " is empty");
  if (spelling.size() > kMaxTokenBytes) {
    return Error(Code::kBadModel, "token ", id, " has ", spelling.size(), " bytes, over the limit ",
                 kMaxTokenBytes);
  }
  if (id >= tokens_.size()) {
    if (id >= tokens_.capacity()) tokens_.reserve(std::max<size_t>(id + 1, 2 * tokens_.capacity()));
    tokens_.resize(id + 1);
  }
  Token& token = tokens_[id];
  if (token.length != kFree) {
    return Error(Code::kBadModel, "id ", id, " belongs to \"",
                 Shown(Bytes(static_cast<uint32_t>(id))), "\" and to \"", Shown(spelling), "\"");
  }
  const size_t offset = arena_used_;
  if (offset + spelling.size() > UINT32_MAX) {
    return Error(Code::kBadModel, "the tokens have over ", UINT32_MAX, " bytes together");
  }
  const size_t room = offset + spelling.size() + kPadding;
  if (room > arena_.size()) arena_.resize(std::max(room, 2 * arena_.size()));
  int64_t length = -1;
  if (byte_level != nullptr) length = byte_level->Decode(spelling, arena_.data() + offset);
  if (length < 0) {
    if (byte_level != nullptr && !odd_.emplace(spelling, static_cast<uint32_t>(id)).second) {
      return Error(Code::kBadModel, "token \"", Shown(spelling), "\" stands twice");
    }
    std::memcpy(arena_.data() + offset, spelling.data(), spelling.size());
    length = static_cast<int64_t>(spelling.size());
  }
  arena_used_ = offset + static_cast<size_t>(length);
  token = {static_cast<uint32_t>(offset), static_cast<uint32_t>(length)};
  return OkStatus();
}

Status Vocabulary::Insert(uint32_t id, const Key& key) {
  const absl::string_view bytes = Bytes(id);
  const size_t mask = slots_.size() - 1;
  size_t at = key.hash >> shift_;
  for (size_t probe = 0; probe < kMaxProbe; ++probe, at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.key == 0) {
      slot.key = key.key;
      slot.id = id;
      return OkStatus();
    }
    if (slot.key == key.key && Bytes(slot.id) == bytes) {
      return Error(Code::kBadModel, "token \"", Shown(bytes), "\" stands twice, with ids ", slot.id,
                   " and ", id);
    }
  }
  return Error(Code::kBadModel, "the tokens make a hash table with probes over ", kMaxProbe);
}

Status Vocabulary::Finish() {
  int bits = 4;
  while ((size_t{1} << bits) < tokens_.size() + tokens_.size() / 2) ++bits;
  slots_.assign(size_t{1} << bits, Slot{});
  shift_ = 64 - bits;
  std::vector<bool> odd(tokens_.size());
  for (const auto& [spelling, id] : odd_) odd[id] = true;
  constexpr uint32_t kAhead = 16;  // far enough that a slot has arrived
  Key keys[kAhead];
  for (uint64_t ahead = 0; ahead < uint64_t{size()} + kAhead; ++ahead) {
    if (ahead >= kAhead) {
      const auto id = static_cast<uint32_t>(ahead - kAhead);
      if (Has(id) && !odd[id]) RETURN_IF_ERROR(Insert(id, keys[id % kAhead]));
    }
    if (ahead < size() && Has(static_cast<uint32_t>(ahead))) {
      keys[ahead % kAhead] = KeyOfPadded(Bytes(static_cast<uint32_t>(ahead)));
      Prefetch(keys[ahead % kAhead]);
    }
  }
  return OkStatus();
}

uint32_t Vocabulary::FindSpelling(absl::string_view spelling, const ByteLevel* byte_level) const {
  if (spelling.empty() || spelling.size() > kMaxTokenBytes) return kNoToken;
  if (byte_level == nullptr) return Find(spelling);
  std::string bytes(spelling.size(), '\0');
  const int64_t length = byte_level->Decode(spelling, bytes.data());
  if (length >= 0) return Find(absl::string_view(bytes.data(), static_cast<size_t>(length)));
  const auto found = odd_.find(spelling);
  return found == odd_.end() ? kNoToken : found->second;
}

}  // namespace mainarch::text
