// SPDX-License-Identifier: MIT
//
// The engine's prefix cache. What a step has run is handed in when it commits, block by block; a sequence
// that has not begun to run looks for its beginning whenever a step is planned, so that of many with
// one system prompt all but the first find it. What is found is shared like a fork's pages. Nothing
// in flight can write to it: a step writes behind what its sequences hold, to pages that no block has.
#include <algorithm>

#include "decode/engine_impl.h"

namespace mainarch::decode {
namespace {

// Where no cache is without a window, so that no pool says how many.
constexpr uint64_t kBlocksWithoutPool = 1 << 16;

}  // namespace

uint32_t EngineImpl::MostBlocks(const Budget& room) const {
  uint64_t blocks = whole_ == nullptr ? kBlocksWithoutPool : whole_->total();
  uint64_t bytes = 0;  // of a block
  for (size_t c = 0; c < pools_.size() && c < room.unit_bytes.size(); ++c) {
    if (pools_[c].form.whole()) bytes += room.unit_bytes[c];
  }
  if (options_.prefix_bytes > 0 && bytes > 0) {
    blocks = std::min(blocks, options_.prefix_bytes / bytes);
  }
  return static_cast<uint32_t>(blocks);
}

void EngineImpl::FindPrefixes() {
  for (Sequence& s : slots_) {
    if (!s.open) continue;
    const uint64_t before = s.position();
    if (!s.FindPrefix(prefixes_.get())) continue;
    prefix_hits_.fetch_add(before == 0, std::memory_order_relaxed);
    prefix_tokens_.fetch_add(s.position() - before, std::memory_order_relaxed);
  }
}

StatusOr<uint64_t> EngineImpl::Pin(absl::Span<const uint32_t> tokens, uint64_t salt) {
  if (prefixes_ == nullptr) return uint64_t{0};
  // What is left holds the longest sequence, so that the oldest one always gets on.
  uint64_t most = UINT64_MAX;
  if (whole_ != nullptr) {
    most = whole_->total() - model::PagesFor(limits_.max_tokens) - prefixes_->pinned();
  }
  const StatusOr<uint64_t> pinned = prefixes_->Pin(salt, tokens, most);
  Publish();
  return pinned;
}

void EngineImpl::Drop(absl::Span<const uint32_t> tokens, uint64_t salt) {
  if (prefixes_ == nullptr) return;
  if (tokens.empty()) {
    prefixes_->DropAll();
  } else {
    prefixes_->Drop(salt, tokens);
  }
  Publish();
}

}  // namespace mainarch::decode
