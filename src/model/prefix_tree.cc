// SPDX-License-Identifier: MIT
#include "model/prefix_tree.h"

// Inlined: one shared object less for every host to load.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace mainarch::model {

using backend::kPageTokens;

PrefixTree::PrefixTree(std::vector<CachePool>* pools, uint32_t max_blocks, uint64_t max_tokens)
    : pools_(pools),
      max_blocks_(max_blocks),
      table_(std::bit_ceil(uint64_t{max_blocks} * 2 + 2)),
      hands_(pools->size(), 0),
      units_(pools->size()) {
  nodes_.reserve(max_blocks);
  units_of_.reserve(size_t{max_blocks} * pools->size());
  free_.reserve(max_blocks);
  leaves_.reserve(max_blocks);
  path_.reserve(max_tokens / kPageTokens + 1);
  for (size_t c = 0; c < pools->size(); ++c) {
    owner_.push_back(std::unique_ptr<uint32_t[]>(new uint32_t[pool(c).total()]));
    units_[c].reserve(max_tokens / kPageTokens + 1);
    pool(c).set_reclaim([this, c] { Reclaim(c); });
  }
}

// `before`: of the tokens before these, or the salt.
uint64_t PrefixTree::HashOf(uint64_t before, const uint32_t* tokens) {
  return XXH64(tokens, kPageTokens * sizeof(uint32_t), before);
}

uint32_t PrefixTree::ChildOf(uint32_t parent, uint64_t hash, uint64_t salt,
                             const uint32_t* tokens) const {
  for (size_t at = SlotOf(hash); table_[at] != 0; at = SlotOf(at + 1)) {
    const Node& node = nodes_[table_[at] - 1];
    if (node.hash == hash && node.parent == parent && node.salt == salt &&
        std::equal(node.tokens.begin(), node.tokens.end(), tokens)) {
      return table_[at] - 1;
    }
  }
  return kNone;
}

void PrefixTree::Enter(uint32_t node) {
  size_t at = SlotOf(nodes_[node].hash);
  while (table_[at] != 0) at = SlotOf(at + 1);
  table_[at] = node + 1;
}

// What follows moves up, so that no gap parts anyone from where its hash says.
void PrefixTree::Leave(uint32_t node) {
  size_t gap = SlotOf(nodes_[node].hash);
  while (table_[gap] != node + 1) gap = SlotOf(gap + 1);
  for (size_t at = SlotOf(gap + 1); table_[at] != 0; at = SlotOf(at + 1)) {
    const size_t home = SlotOf(nodes_[table_[at] - 1].hash);
    if (SlotOf(at - home) < SlotOf(at - gap)) continue;
    table_[gap] = table_[at];
    gap = at;
  }
  table_[gap] = 0;
}

void PrefixTree::SetLeaf(uint32_t at, uint32_t node) {
  leaves_[at] = node;
  nodes_[node].heap = at;
}

void PrefixTree::SiftUp(uint32_t at) {
  const uint32_t node = leaves_[at];
  for (; at > 0 && nodes_[leaves_[(at - 1) / 2]].used > nodes_[node].used; at = (at - 1) / 2) {
    SetLeaf(at, leaves_[(at - 1) / 2]);
  }
  SetLeaf(at, node);
}

void PrefixTree::SiftDown(uint32_t at) {
  const uint32_t node = leaves_[at];
  while (true) {
    size_t child = size_t{at} * 2 + 1;
    if (child >= leaves_.size()) break;
    if (child + 1 < leaves_.size() &&
        nodes_[leaves_[child + 1]].used < nodes_[leaves_[child]].used) {
      ++child;
    }
    if (nodes_[leaves_[child]].used >= nodes_[node].used) break;
    SetLeaf(at, leaves_[child]);
    at = static_cast<uint32_t>(child);
  }
  SetLeaf(at, node);
}

void PrefixTree::PutLeaf(uint32_t node) {
  if (nodes_[node].pinned) return;
  leaves_.push_back(node);
  SiftUp(static_cast<uint32_t>(leaves_.size() - 1));
}

void PrefixTree::TakeLeaf(uint32_t node) {
  const uint32_t at = nodes_[node].heap;
  if (at == kNone) return;
  nodes_[node].heap = kNone;
  const uint32_t last = leaves_.back();
  leaves_.pop_back();
  if (last == node) return;
  SetLeaf(at, last);
  SiftUp(at);
  SiftDown(nodes_[last].heap);
}

void PrefixTree::Touch(uint32_t node) {
  nodes_[node].used = ++clock_;
  nodes_[node].touched = true;
  if (nodes_[node].heap != kNone) SiftDown(nodes_[node].heap);
}

void PrefixTree::Follow(uint64_t salt, absl::Span<const uint32_t> tokens) {
  path_.clear();
  uint32_t node = kNone;
  uint64_t hash = salt;
  for (size_t at = 0; at + kPageTokens <= tokens.size(); at += kPageTokens) {
    hash = HashOf(hash, &tokens[at]);
    node = ChildOf(node, hash, salt, &tokens[at]);
    if (node == kNone) return;
    path_.push_back(node);
  }
}

bool PrefixTree::Stands(uint64_t blocks) const {
  for (size_t c = 0; c < pools_->size(); ++c) {
    if (form(c).whole()) continue;
    if (form(c).slots) {
      if (unit(path_[blocks - 1], c) == kNoPage) return false;
      continue;
    }
    const uint64_t first = FirstPage(form(c), blocks * kPageTokens);
    for (uint64_t b = 0; b < blocks; ++b) {
      if ((b >= first || b < form(c).kept) && unit(path_[b], c) == kNoPage) return false;
    }
  }
  return true;
}

void PrefixTree::CollectUnits(uint64_t blocks) {
  for (size_t c = 0; c < pools_->size(); ++c) {
    units_[c].clear();
    if (blocks == 0) continue;
    if (form(c).slots) {
      units_[c].push_back(unit(path_[blocks - 1], c));
      continue;
    }
    const uint64_t first = FirstPage(form(c), blocks * kPageTokens);
    for (uint64_t b = 0; b < blocks; ++b) {
      units_[c].push_back(b >= first || b < form(c).kept ? unit(path_[b], c) : kNoPage);
    }
  }
}

uint64_t PrefixTree::Find(uint64_t salt, absl::Span<const uint32_t> tokens) {
  Follow(salt, tokens);
  while (!path_.empty() && !Stands(path_.size())) path_.pop_back();
  for (const uint32_t node : path_) Touch(node);
  CollectUnits(path_.size());
  return path_.size() * kPageTokens;
}

PrefixTree::Place PrefixTree::place() const {
  if (path_.empty()) return Place();
  return {path_.back(), nodes_[path_.back()].stamp, path_.size()};
}

// Nobody's, if the tree keeps none of its pages beside others that do.
bool PrefixTree::InUse(uint32_t node) {
  for (size_t c = 0; c < pools_->size(); ++c) {
    if (!form(c).whole() || unit(node, c) == kNoPage) continue;
    if (pool(c).refs()[unit(node, c)] > 0) return true;
  }
  return false;
}

// Gives up a leaf, one that no sequence uses if there is one; false: there is none at all.
bool PrefixTree::Evict() {
  for (size_t looked = 0; looked < leaves_.size() && InUse(leaves_[0]); ++looked) {
    Touch(leaves_[0]);
  }
  if (leaves_.empty()) return false;
  ++counts_.evictions;
  Remove(leaves_[0]);
  return true;
}

// A kept unit that is nobody's lies in a leaf, or above one that may go.
void PrefixTree::Reclaim(size_t cache) {
  if (!form(cache).whole()) return SweepUnit(cache);
  while (pool(cache).free_pages() == pool(cache).idle_pages() && Evict()) {
  }
}

// The next one that is nobody's and has not been used since the sweep came by; of a pinned block only
// where there is no other.
void PrefixTree::SweepUnit(size_t cache) {
  PagePool& units = pool(cache);
  uint32_t& hand = hands_[cache];
  for (uint64_t looked = 0; looked < 3 * uint64_t{units.total()}; ++looked) {
    const uint32_t at = hand;
    hand = hand + 1 == units.total() ? 0 : hand + 1;
    if (!units.kept(at) || units.refs()[at] > 0) continue;
    Node& node = nodes_[owner_[cache][at]];
    const bool spared = node.touched || (node.pinned && looked < 2 * uint64_t{units.total()});
    node.touched = false;
    if (!spared) return GiveUnit(owner_[cache][at], cache);
  }
}

void PrefixTree::GiveUnit(uint32_t node, size_t cache) {
  uint32_t& held = unit(node, cache);
  if (held == kNoPage) return;
  if (nodes_[node].pinned && form(cache).whole()) pool(cache).Release(held);
  pool(cache).Unkeep(held);
  held = kNoPage;
}

void PrefixTree::Remove(uint32_t index) {
  Node& node = nodes_[index];
  TakeLeaf(index);
  Leave(index);
  for (size_t c = 0; c < pools_->size(); ++c) GiveUnit(index, c);
  (node.before == kNone ? (node.parent == kNone ? first_ : nodes_[node.parent].child)
                        : nodes_[node.before].next) = node.next;
  if (node.next != kNone) nodes_[node.next].before = node.before;
  pinned_ -= node.pinned;
  const uint32_t parent = node.parent;
  node = Node();
  free_.push_back(index);
  --counts_.blocks;
  if (parent != kNone && nodes_[parent].child == kNone) PutLeaf(parent);
}

void PrefixTree::RemoveAll(uint32_t top) {
  uint32_t node = top;
  while (true) {
    while (nodes_[node].child != kNone) node = nodes_[node].child;
    const uint32_t parent = nodes_[node].parent;
    Remove(node);
    if (node == top) return;
    node = parent;
  }
}

// A child without units; kNone where there is no room. Nothing above it goes for it.
uint32_t PrefixTree::Add(uint32_t parent, uint64_t hash, uint64_t salt, const uint32_t* tokens) {
  if (parent != kNone) TakeLeaf(parent);
  const bool room = counts_.blocks < max_blocks_ || Evict();
  // Its last child may just have gone.
  if (parent != kNone) TakeLeaf(parent);
  if (!room) {
    if (parent != kNone && nodes_[parent].child == kNone) PutLeaf(parent);
    return kNone;
  }
  uint32_t index = static_cast<uint32_t>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
    units_of_.resize(units_of_.size() + pools_->size(), kNoPage);
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Node& node = nodes_[index];
  std::copy(tokens, tokens + kPageTokens, node.tokens.begin());
  node.salt = salt;
  node.hash = hash;
  node.stamp = ++stamps_;
  node.parent = parent;
  uint32_t& first = parent == kNone ? first_ : nodes_[parent].child;
  node.next = first;
  if (first != kNone) nodes_[first].before = index;
  first = index;
  ++counts_.blocks;
  Enter(index);
  return index;
}

// Of caches without a window: the block's pages are those of another, who ran the same tokens by itself.
bool PrefixTree::HasOtherPages(uint32_t node, uint64_t block, const SequenceCaches& caches) const {
  for (size_t c = 0; c < pools_->size(); ++c) {
    if (form(c).whole() && unit(node, c) != kNoPage && unit(node, c) != caches.table(c).pages()[block]) return true;
  }
  return false;
}

// The sequence holds a page, which no block has, wherever the block has one, and at least one where it has none.
bool PrefixTree::HasMorePages(uint32_t node, uint64_t block, const SequenceCaches& caches) const {
  bool more = false;
  for (size_t c = 0; c < pools_->size(); ++c) {
    if (form(c).slots) continue;
    const uint32_t held = caches.table(c).pages()[block];
    if (held == kNoPage ? unit(node, c) != kNoPage : (*pools_)[c].units.kept(held)) return false;
    more |= held != kNoPage && unit(node, c) == kNoPage;
  }
  return more;
}

// Those of the sequence's that the block has not: all, if it is new. A block's pages are of one sequence, or of some that
// share them: with one's page of a cache without a window and another's of a windowed one, those who hold the first could
// hold several of the second, and a windowed pool may have no more pages than the other (PoolSize). So a page of a window
// that was given up comes back with all others of its sequence.
void PrefixTree::TakeUnits(uint32_t node, uint64_t block, const SequenceCaches& caches) {
  const bool other = HasOtherPages(node, block, caches), replaces = other && HasMorePages(node, block, caches);
  for (size_t c = 0; c < pools_->size(); ++c) {
    if (other && !form(c).slots) {
      if (!replaces) continue;
      GiveUnit(node, c);
    }
    if (unit(node, c) != kNoPage) continue;
    const uint32_t held = form(c).slots ? caches.SnapshotState(c, (block + 1) * kPageTokens)
                                        : caches.table(c).pages()[block];
    if (held == kNoPage || pool(c).kept(held)) continue;
    pool(c).Keep(held);
    if (nodes_[node].pinned && form(c).whole()) pool(c).Share(held);
    owner_[c][held] = node;
    unit(node, c) = held;
    ++stamps_;
  }
}

void PrefixTree::Extend(uint64_t salt, absl::Span<const uint32_t> tokens,
                        const SequenceCaches& caches, Place* place) {
  const uint64_t end = caches.position() / kPageTokens;
  if (place->blocks > 0 && nodes_[place->node].stamp != place->stamp) *place = Place();
  while (place->blocks < end) {
    const uint32_t* const block = &tokens[place->blocks * kPageTokens];
    const uint64_t hash = HashOf(place->blocks == 0 ? salt : nodes_[place->node].hash, block);
    const uint32_t parent = place->blocks == 0 ? kNone : place->node;
    uint32_t node = ChildOf(parent, hash, salt, block);
    const bool added = node == kNone;
    if (added) node = Add(parent, hash, salt, block);
    if (node == kNone) return;
    TakeUnits(node, place->blocks, caches);
    Touch(node);
    if (added) PutLeaf(node);
    *place = {node, nodes_[node].stamp, place->blocks + 1};
  }
}

void PrefixTree::Forget(size_t cache, uint32_t page) { RemoveAll(owner_[cache][page]); }

StatusOr<uint64_t> PrefixTree::Pin(uint64_t salt, absl::Span<const uint32_t> tokens,
                                   uint64_t max_blocks) {
  Follow(salt, tokens);
  while (!path_.empty() && !Stands(path_.size())) path_.pop_back();
  const auto more = static_cast<uint64_t>(std::count_if(
      path_.begin(), path_.end(), [this](uint32_t node) { return !nodes_[node].pinned; }));
  if (more > max_blocks) {
    return Error(Code::kKvFull, "pinning ", more * kPageTokens, " tokens more: there is room for ",
                 max_blocks * kPageTokens, " beside the longest sequence");
  }
  for (const uint32_t node : path_) {
    if (nodes_[node].pinned) continue;
    TakeLeaf(node);
    nodes_[node].pinned = true;
    ++pinned_;
    for (size_t c = 0; c < pools_->size(); ++c) {
      if (form(c).whole()) pool(c).Share(unit(node, c));
    }
  }
  if (!path_.empty()) nodes_[path_.back()].pin_ends = true;
  return path_.size() * kPageTokens;
}

void PrefixTree::Unpin(uint32_t node) {
  nodes_[node].pinned = false;
  --pinned_;
  for (size_t c = 0; c < pools_->size(); ++c) {
    if (form(c).whole()) pool(c).Release(unit(node, c));
  }
  if (nodes_[node].child == kNone && nodes_[node].heap == kNone) PutLeaf(node);
}

bool PrefixTree::HasPinnedChild(uint32_t node) const {
  uint32_t child = nodes_[node].child;
  while (child != kNone && !nodes_[child].pinned) child = nodes_[child].next;
  return child != kNone;
}

void PrefixTree::Drop(uint64_t salt, absl::Span<const uint32_t> tokens) {
  Follow(salt, tokens);
  const uint64_t blocks = tokens.size() / kPageTokens;
  if (blocks == 0 || path_.size() < blocks) return;
  RemoveAll(path_.back());
  path_.pop_back();
  for (; !path_.empty() && nodes_[path_.back()].pinned; path_.pop_back()) {
    if (nodes_[path_.back()].pin_ends || HasPinnedChild(path_.back())) return;
    Unpin(path_.back());
  }
}

void PrefixTree::DropAll() {
  while (first_ != kNone) RemoveAll(first_);
}

}  // namespace mainarch::model
