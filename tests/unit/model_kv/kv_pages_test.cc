// SPDX-License-Identifier: MIT
#include "model/kv_pages.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "support/test.h"

using namespace mainarch;
using namespace mainarch::model;

namespace {

Status NoCopy(uint32_t, uint32_t) { return Error(Code::kInternal, "an unexpected copy"); }

}  // namespace

TEST(ids_come_lowest_first_for_any_size) {
  for (const uint32_t count : {0u, 1u, 63u, 64u, 65u, 4096u, 4097u, 300'000u}) {
    IdSet set(count);
    for (uint32_t i = 0; i < count; ++i) CHECK_EQ(set.TakeLowest(), i);
    CHECK_EQ(set.TakeLowest(), kNoPage);
    for (uint32_t i = 0; i < count; i += 7) set.Put(i);
    for (uint32_t i = 0; i < count; i += 7) CHECK_EQ(set.TakeLowest(), i);
    CHECK_EQ(set.size(), 0u);
  }
}

TEST(random_takes_and_puts_match_an_ordered_set) {
  std::mt19937 random(5);
  IdSet set(5000);
  std::set<uint32_t> oracle;
  for (uint32_t i = 0; i < 5000; ++i) oracle.insert(i);
  std::vector<uint32_t> out;
  for (int i = 0; i < 200'000; ++i) {
    if (random() % 2 == 0 || out.empty()) {
      const uint32_t id = set.TakeLowest();
      CHECK_EQ(id, oracle.empty() ? kNoPage : *oracle.begin());
      if (id == kNoPage) continue;
      oracle.erase(oracle.begin());
      out.push_back(id);
    } else {
      std::swap(out[random() % out.size()], out.back());
      set.Put(out.back());
      oracle.insert(out.back());
      out.pop_back();
    }
    CHECK_EQ(set.size(), oracle.size());
  }
}

TEST(a_table_takes_pages_when_a_position_needs_them) {
  PagePool pool(4);
  PageTable table(&pool, 4);
  CHECK_EQ(PagesNeeded(table.pages(), pool.refs(), 0, 17), 2u);
  CHECK_OK(table.Prepare(0, 17, NoCopy));
  CHECK_EQ(table.pages().size(), 2u);
  CHECK_EQ(table.pages()[0], 0u);
  CHECK_EQ(PagesNeeded(table.pages(), pool.refs(), 17, 15), 0u);
  CHECK_EQ(PagesNeeded(table.pages(), pool.refs(), 17, 16), 1u);
  const Status full = table.Prepare(17, 100, NoCopy);
  CHECK(CodeOf(full) == Code::kKvFull);
  CHECK_EQ(table.pages().size(), 2u);
  table.Truncate(16);
  CHECK_EQ(pool.free_pages(), 3u);
}

TEST(forks_copy_the_partial_page_only_and_only_while_it_is_shared) {
  PagePool pool(8);
  PageTable a(&pool, 8);
  PageTable b(&pool, 8);
  CHECK_OK(a.Prepare(0, 40, NoCopy));
  b.ShareFrom(a);
  CHECK_EQ(pool.free_pages(), 5u);
  CHECK_EQ(PagesNeeded(b.pages(), pool.refs(), 40, 1), 1u);
  std::vector<std::pair<uint32_t, uint32_t>> copies;
  const PageTable::Copy copy = [&](uint32_t from, uint32_t to) {
    copies.emplace_back(from, to);
    return OkStatus();
  };
  CHECK_OK(b.Prepare(40, 1, copy));
  CHECK_EQ(copies.size(), 1u);
  CHECK_EQ(copies[0].first, 2u);
  CHECK_EQ(copies[0].second, 3u);
  CHECK_EQ(b.pages()[1], a.pages()[1]);
  CHECK_OK(a.Prepare(40, 1, NoCopy));  // alone again with its page
  b.Truncate(0);
  CHECK_EQ(pool.free_pages(), 5u);
}

TEST(a_failed_copy_leaves_both_forks_alone) {
  PagePool pool(4);
  PageTable a(&pool, 4);
  PageTable b(&pool, 4);
  CHECK_OK(a.Prepare(0, 5, NoCopy));
  b.ShareFrom(a);
  CHECK(!b.Prepare(5, 1, NoCopy).ok());
  CHECK_EQ(b.pages()[0], a.pages()[0]);
  CHECK_EQ(pool.free_pages(), 3u);
}

TEST(a_shared_page_that_holds_nothing_wanted_is_replaced_without_a_copy) {
  PagePool pool(4);
  PageTable a(&pool, 4);
  PageTable b(&pool, 4);
  CHECK_OK(a.Prepare(0, 32, NoCopy));
  b.ShareFrom(a);
  CHECK_EQ(PagesNeeded(b.pages(), pool.refs(), 16, 1), 1u);
  CHECK_OK(b.Prepare(16, 1, NoCopy));
  CHECK_NE(b.pages()[1], a.pages()[1]);
}

// Random sequences of operations: counts equal the tables that hold a page, and no page is writable
// by two tables.
TEST(reference_counts_equal_the_tables_that_hold_a_page) {
  std::mt19937 random(11);
  PagePool pool(64);
  struct Held {
    PageTable table;
    uint64_t tokens = 0;
  };
  std::vector<Held> held(9);
  for (Held& h : held) h.table = PageTable(&pool, 64);
  for (int round = 0; round < 20'000; ++round) {
    Held& h = held[random() % held.size()];
    const uint32_t action = random() % 4;
    if (action < 2) {
      const uint64_t rows = 1 + random() % 40;
      const uint32_t need = PagesNeeded(h.table.pages(), pool.refs(), h.tokens, rows);
      const uint32_t before = pool.free_pages();
      const Status status =
          h.table.Prepare(h.tokens, rows, [](uint32_t, uint32_t) { return OkStatus(); });
      CHECK_EQ(status.ok(), need <= before);
      if (status.ok()) {
        CHECK_EQ(before - pool.free_pages(), need);
        for (uint64_t p = h.tokens / 16; p < PagesFor(h.tokens + rows); ++p) {
          CHECK_EQ(pool.refs()[h.table.pages()[p]], 1u);
        }
        h.tokens += rows;
      }
    } else if (action == 2) {
      h.tokens = random() % (h.tokens + 1);
      h.table.Truncate(h.tokens);
    } else {
      Held& other = held[random() % held.size()];
      if (&other == &h) continue;
      h.table.ShareFrom(other.table);
      h.tokens = other.tokens;
    }
    std::map<uint32_t, uint32_t> counts;
    for (const Held& x : held) {
      CHECK_EQ(x.table.pages().size(), PagesFor(x.tokens));
      for (const uint32_t page : x.table.pages()) ++counts[page];
    }
    CHECK_EQ(pool.free_pages() + counts.size(), 64u);
    for (const auto& [page, count] : counts) CHECK_EQ(pool.refs()[page], count);
  }
}

// A million random operations on sequences of up to 300,000 tokens in a pool that they can fill, against
// plain arrays: what each position reads through its table is what was written there last, and no page is
// lost. Pages are not cleared when they come back: what a new one holds is some other sequence's.
TEST(a_million_operations_match_plain_arrays) {
  constexpr uint32_t kPages = 20'000, kSequences = 12, kMaxTokens = 300'000;
  constexpr uint32_t kTokens = backend::kPageTokens;
  std::mt19937 random(29);
  PagePool pool(kPages);
  std::vector<uint32_t> memory(size_t{kPages} * kTokens, 0xdeadbeef);
  struct Sequence {
    PageTable table;
    std::vector<uint32_t> array;  // what its tokens are
  };
  std::vector<Sequence> all(kSequences);
  for (Sequence& s : all) s.table = PageTable(&pool, PagesFor(kMaxTokens));
  const auto read = [&](const Sequence& s, size_t position) {
    return memory[size_t{s.table.pages()[position / kTokens]} * kTokens + position % kTokens];
  };
  const auto copy = [&](uint32_t from, uint32_t to) {
    std::copy_n(&memory[size_t{from} * kTokens], kTokens, &memory[size_t{to} * kTokens]);
    return OkStatus();
  };
  uint32_t next = 0;
  uint64_t refused = 0, longest = 0;
  for (int operation = 0; operation < 1'000'000; ++operation) {
    Sequence& s = all[random() % kSequences];
    const uint32_t action = random() % 1000;
    if (action < 980) {
      // Mostly decoded tokens and drafts, now and then a prompt.
      const uint64_t rows = random() % 200 == 0 ? 1 + random() % 4000 : 1 + random() % 8;
      if (s.array.size() + rows > kMaxTokens) continue;
      if (!s.table.Prepare(s.array.size(), rows, copy).ok()) {
        ++refused;
        s.table.Truncate(0);
        s.array.clear();
        continue;
      }
      for (uint64_t i = 0; i < rows; ++i) {
        const size_t at = s.array.size();
        CHECK_EQ(pool.refs()[s.table.pages()[at / kTokens]], 1u);
        memory[size_t{s.table.pages()[at / kTokens]} * kTokens + at % kTokens] = ++next;
        s.array.push_back(next);
      }
    } else if (action < 998) {
      // Rejected drafts; rarely most of it.
      const size_t keep = s.array.size() - std::min<size_t>(s.array.size(), random() % 20);
      s.array.resize(keep);
      s.table.Truncate(keep);
    } else {
      const Sequence& other = all[random() % kSequences];
      if (&other == &s) continue;
      s.table.ShareFrom(other.table);
      s.array = other.array;
    }
    longest = std::max<uint64_t>(longest, s.array.size());
    CHECK_EQ(s.table.pages().size(), PagesFor(s.array.size()));
    if (s.array.empty()) continue;
    for (const size_t at : {s.array.size() - 1, random() % s.array.size()}) CHECK_EQ(read(s, at), s.array[at]);
    if (operation % 50'000 != 0) continue;
    std::vector<uint32_t> counts(kPages);
    for (const Sequence& each : all) {
      for (const uint32_t page : each.table.pages()) ++counts[page];
      for (size_t at = 0; at < each.array.size(); ++at) CHECK_EQ(read(each, at), each.array[at]);
    }
    CHECK(absl::MakeConstSpan(counts) == pool.refs());
    CHECK_EQ(pool.free_pages(), static_cast<uint32_t>(std::count(counts.begin(), counts.end(), 0u)));
  }
  CHECK_LE(uint64_t{1}, refused);
  CHECK_LE(uint64_t{50'000}, longest);
  for (Sequence& s : all) s.table.Truncate(0);
  CHECK_EQ(pool.free_pages(), kPages);
}
