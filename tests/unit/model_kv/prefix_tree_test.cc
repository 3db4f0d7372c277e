// SPDX-License-Identifier: MIT
//
// Whose units a block keeps where several sequences ran its tokens: engine_prefix_test has who finds what.
#include "model/prefix_tree.h"

#include <numeric>

#include "support/test.h"

using namespace mainarch;
using namespace mainarch::model;

namespace {

constexpr uint64_t kSalt = 7;
constexpr uint32_t kMaxTokens = 64;

std::vector<uint32_t> Text(uint32_t tokens) {
  std::vector<uint32_t> text(tokens);
  std::iota(text.begin(), text.end(), 0u);
  return text;
}

// One cache that keeps all tokens, and one that keeps a window shorter than a page.
struct Bench {
  Bench(uint32_t pages, uint32_t window_pages)
      : pools{{{}, PagePool(pages)}, {{false, 12}, PagePool(window_pages)}}, tree(&pools, 16, kMaxTokens) {}

  SequenceCaches Open() {
    SequenceCaches caches;
    caches.Open(&pools, kMaxTokens, /*max_drafts=*/0, /*snapshot_tokens=*/16, /*max_snapshots=*/0, /*prefixes=*/true);
    return caches;
  }
  // False: there was no room.
  bool Run(SequenceCaches& caches, uint32_t rows) {
    const SequenceCaches::Hooks hooks = {[](int32_t, uint32_t, uint32_t) { return OkStatus(); }, [] { return false; },
                                         [this](size_t cache, uint32_t page) { tree.Forget(cache, page); }};
    if (!caches.Prepare({rows}, hooks).ok()) return false;
    caches.Commit(rows);
    caches.TrimSnapshots();
    return true;
  }
  void Extend(const SequenceCaches& caches) {
    PrefixTree::Place place;
    tree.Extend(kSalt, Text(kMaxTokens), caches, &place);
  }
  uint64_t Find() { return tree.Find(kSalt, Text(16)); }
  void Adopt(SequenceCaches& caches) { caches.Adopt(Find(), tree.units()); }
  uint32_t Used(size_t cache) const { return pools[cache].units.total() - pools[cache].units.free_pages(); }

  std::vector<CachePool> pools;
  PrefixTree tree;
};

}  // namespace

// Else those who share it could hold a page of the window each, more than there are in the pool.
TEST(a_block_has_the_pages_of_one_sequence) {
  Bench bench(8, 8);
  SequenceCaches first = bench.Open(), second = bench.Open(), third = bench.Open(), fourth = bench.Open();
  CHECK(bench.Run(first, 16));
  bench.Extend(first);
  bench.Adopt(second);
  CHECK_EQ(second.position(), 16u);
  // The first one's window passes the block, which is entered again without a page of that.
  CHECK(bench.Run(first, 16));
  bench.tree.DropAll();
  bench.Extend(first);
  CHECK_EQ(bench.Find(), 0u);
  CHECK(bench.Run(third, 16));
  bench.Extend(third);
  bench.Adopt(fourth);
  CHECK_EQ(fourth.position(), 16u);
  third.Clear();
  // The second's, the fourth's, and the first's second one.
  CHECK_EQ(bench.Used(1), 3u);
  CHECK_EQ(bench.Used(0), 3u);
}

TEST(a_pin_goes_over_to_the_pages_that_a_block_has_instead) {
  Bench bench(8, 3);
  SequenceCaches first = bench.Open(), other = bench.Open(), third = bench.Open();
  CHECK(bench.Run(first, 16));
  bench.Extend(first);
  CHECK_EQ(*bench.tree.Pin(kSalt, Text(16), /*max_blocks=*/1), 16u);
  first.Clear();
  // Takes the block's page of the window.
  CHECK(bench.Run(other, 48));
  other.Clear();
  CHECK_EQ(bench.Find(), 0u);
  CHECK_EQ(bench.Used(0), 1u);
  CHECK(bench.Run(third, 16));
  bench.Extend(third);
  CHECK_EQ(bench.Used(0), 1u);
  third.Clear();
  CHECK_EQ(bench.Used(0), 1u);
  CHECK_EQ(bench.Find(), 16u);
  bench.tree.DropAll();
  for (const CachePool& pool : bench.pools) {
    CHECK_EQ(pool.units.free_pages(), pool.units.total());
    CHECK_EQ(pool.units.idle_pages(), 0u);
  }
}

// The second one's window has passed the block when it is entered.
TEST(a_block_keeps_its_pages_where_a_sequence_has_no_more) {
  Bench bench(8, 8);
  SequenceCaches first = bench.Open(), second = bench.Open();
  CHECK(bench.Run(first, 16));
  bench.Extend(first);
  CHECK(bench.Run(second, 48));
  bench.Extend(second);
  first.Clear();
  CHECK_EQ(bench.Find(), 16u);
  second.Clear();
  bench.tree.DropAll();
  CHECK_EQ(bench.Used(0), 0u);
  CHECK_EQ(bench.Used(1), 0u);
}
