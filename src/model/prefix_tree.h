// SPDX-License-Identifier: MIT
//
// The prefix cache: what caches hold of tokens that some sequence began with, kept for the next one
// that begins alike. A tree of blocks: a block is kPageTokens tokens, one page of each paged cache
// and, where a sequence had a snapshot at its end, a slot of each cache of states. Whoever begins
// with the tokens on the way from the root to a block may share the units on it, because K, V and
// states of a token depend on nothing but the tokens before it, to the bit.
//
// A way is followed by hashes (a block's and those before it, chained), and believed when the tokens
// are the same: no hash, however made, gives anyone another's content. Sequences of different salts
// share nothing, so that nobody can tell from times what others have asked.
//
// Units stay in their pools, Kept beside the references of sequences, so the cache takes no memory but
// that of units that nobody uses. When a pool has no other, the block that was used the longest ago
// goes, from the ends of the tree, its states with it; a pool of states or of a window takes back
// single units: then the block stays, and nobody can stand at its end.
//
// Threads: one at a time (the engine's). Nothing here allocates after construction.
#ifndef MAINARCH_MODEL_PREFIX_TREE_H_
#define MAINARCH_MODEL_PREFIX_TREE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "model/sequence_caches.h"

namespace mainarch::model {

class PrefixTree {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Where a sequence is: its first `blocks` blocks are in the tree, the last of them is `node`, if
  // that is still the one it was.
  struct Place {
    uint32_t node = kNone;
    uint64_t stamp = 0;
    uint64_t blocks = 0;
  };
  struct Counts {
    uint64_t blocks = 0;     // now
    uint64_t evictions = 0;  // blocks that went for others
  };

  // Of at most `max_blocks`, for sequences of at most `max_tokens`; becomes the `reclaim` of the pools,
  // which outlive it.
  PrefixTree(std::vector<CachePool>* pools, uint32_t max_blocks, uint64_t max_tokens);
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest beginning of `tokens` after which a sequence can stand, a multiple of a block's; and,
  // until the next call, of each cache what it stands on there.
  uint64_t Find(uint64_t salt, absl::Span<const uint32_t> tokens);
  absl::Span<const std::vector<uint32_t>> units() const { return units_; }
  Place place() const;  // of what was found

  // Takes in what a sequence holds: blocks behind `place`, and states of its snapshots at the ends of
  // those. Fewer where there is no room.
  void Extend(uint64_t salt, absl::Span<const uint32_t> tokens, const SequenceCaches& caches,
              Place* place);

  // The block of this page, and all that begin with it, go: it is about to be written.
  void Forget(size_t cache, uint32_t page);
  // How many beginning tokens are there, and are from now on not given up: their pages count as in use
  // (of windows, and states, they are only the last to go). KvFull, and none is pinned, if these are
  // more than `max_blocks` blocks that were not.
  StatusOr<uint64_t> Pin(uint64_t salt, absl::Span<const uint32_t> tokens, uint64_t max_blocks);
  // Every block that ends at these tokens' last whole one or behind it goes, pinned or not; those before
  // it are given up as others are, but for those that another pin needs.
  void Drop(uint64_t salt, absl::Span<const uint32_t> tokens);
  void DropAll();

  const Counts& counts() const { return counts_; }
  uint64_t pinned() const { return pinned_; }  // blocks
  // Changes whenever there is something new to find.
  uint64_t stamp() const { return stamps_; }

 private:
  using Tokens = std::array<uint32_t, backend::kPageTokens>;
  struct Node {
    Tokens tokens;
    uint64_t salt = 0;
    uint64_t hash = 0;   // of all tokens from the root on
    uint64_t stamp = 0;  // 0: none lives here
    uint64_t used = 0;   // when it was last
    uint32_t parent = kNone;
    uint32_t child = kNone, next = kNone, before = kNone;  // the first child; brothers
    uint32_t heap = kNone;                                 // place in leaves_
    bool pinned = false;
    bool pin_ends = false;  // not only one on the way to another
    bool touched = false;  // since a sweep came by
  };

  const CacheForm& form(size_t cache) const { return (*pools_)[cache].form; }
  PagePool& pool(size_t cache) { return (*pools_)[cache].units; }
  uint32_t& unit(uint32_t node, size_t cache) { return units_of_[node * pools_->size() + cache]; }
  uint32_t unit(uint32_t node, size_t cache) const {
    return units_of_[node * pools_->size() + cache];
  }
  static uint64_t HashOf(uint64_t before, const uint32_t* tokens);
  size_t SlotOf(uint64_t hash) const { return hash & (table_.size() - 1); }

  void Follow(uint64_t salt, absl::Span<const uint32_t> tokens);  // fills path_
  uint32_t ChildOf(uint32_t parent, uint64_t hash, uint64_t salt, const uint32_t* tokens) const;
  bool Stands(uint64_t blocks) const;  // on the first ones of path_
  void CollectUnits(uint64_t blocks);
  uint32_t Add(uint32_t parent, uint64_t hash, uint64_t salt, const uint32_t* tokens);
  bool HasOtherPages(uint32_t node, uint64_t block, const SequenceCaches& caches) const;
  bool HasMorePages(uint32_t node, uint64_t block, const SequenceCaches& caches) const;
  void TakeUnits(uint32_t node, uint64_t block, const SequenceCaches& caches);
  void GiveUnit(uint32_t node, size_t cache);
  void Remove(uint32_t node);  // a leaf
  void RemoveAll(uint32_t node);
  void Unpin(uint32_t node);
  bool HasPinnedChild(uint32_t node) const;
  bool InUse(uint32_t node);
  bool Evict();
  void Reclaim(size_t cache);
  void SweepUnit(size_t cache);

  // Table of nodes by hash, open, linear.
  void Enter(uint32_t node);
  void Leave(uint32_t node);

  // Leaves that may go, the one unused for the longest time first.
  void PutLeaf(uint32_t node);
  void TakeLeaf(uint32_t node);
  void Touch(uint32_t node);
  void SiftUp(uint32_t at);
  void SiftDown(uint32_t at);
  void SetLeaf(uint32_t at, uint32_t node);

  std::vector<CachePool>* pools_;
  const uint32_t max_blocks_;
  // Reserved, and grown as they are used: memory that nobody touches costs nothing.
  std::vector<Node> nodes_;
  std::vector<uint32_t> units_of_;  // [nodes][caches]; kNoPage: none
  // [caches][units of its pool]: the node that keeps it; set where one does.
  std::vector<std::unique_ptr<uint32_t[]>> owner_;
  std::vector<uint32_t> free_;   // of nodes_
  std::vector<uint32_t> table_;  // a power of two; a node + 1, 0: none
  std::vector<uint32_t> leaves_;
  std::vector<uint32_t> hands_;  // [caches], of sweeps
  uint32_t first_ = kNone;       // of the root's children
  uint64_t clock_ = 0, stamps_ = 0, pinned_ = 0;
  Counts counts_;

  std::vector<uint32_t> path_;                // the last Follow's
  std::vector<std::vector<uint32_t>> units_;  // the last Find's
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_PREFIX_TREE_H_
