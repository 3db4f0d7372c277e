// SPDX-License-Identifier: MIT
//
// What the host writes for a step: choices as words, and changes of page tables.
#include <cstring>

#include "backend/amdgpu/choices.h"
#include "backend/amdgpu/page_tables.h"
#include "support/test.h"
#include "unit/backend/amdgpu_programs.h"

namespace mainarch::amdgpu {
namespace {

// What is written for a row, and that a row whose lists do not fit is read.
TEST(choices_as_words) {
  const uint32_t bans[] = {3, 4};
  const backend::LogitBias bias[] = {{7, 0.5f}, {7, -1}};
  const uint32_t counted[] = {9, 2}, times[] = {0, 0, 1, 0, 0, 0, 0, 0, 0, 6};
  backend::Choice drawn;
  drawn.choose = true;
  drawn.read = false;
  drawn.temperature = 0.5f;
  drawn.top_k = 20;
  drawn.seed = 5;
  drawn.banned[1] = bans;
  drawn.bias = bias;
  drawn.counted = counted;
  drawn.times = times;
  const uint32_t mask[] = {0x3ff, 7};
  drawn.mask = mask;
  backend::Choice greedy;
  greedy.choose = true;
  greedy.seed = 77;
  backend::Choice choices[] = {drawn, backend::Choice(), greedy};
  const uint32_t rows[] = {0, 1, 2};
  backend::Step step;
  step.logit_rows = rows;
  step.choices = choices;
  constexpr uint32_t kEnd = 2 + 3 * kChoiceRowWords + 4 * 3 + 2 * 2 + 2;
  std::vector<uint32_t> block(kEnd + 1, 0xdead);
  RowOutcome rows_are[3];
  const absl::Span<RowOutcome> outcomes(rows_are);
  ChoiceWork work = WriteChoices(step, 2, kEnd, block.data(), outcomes);
  CHECK_EQ(work.end, kEnd);
  CHECK(!work.races);  // of 20 tokens one is drawn at once
  CHECK(!outcomes[0].read && outcomes[1].read && outcomes[2].read);
  CHECK(outcomes[0].told && !outcomes[1].told && outcomes[2].told);
  kernels::ChoiceRow row;
  std::memcpy(static_cast<void*>(&row), &block[2], sizeof(row));
  CHECK_EQ(row.flags, kernels::kChoiceToken | kernels::kChoiceSample | kernels::kChoiceMask);
  CHECK_EQ(row.top_k, 20u);
  CHECK_EQ(row.seed, 5u);
  CHECK_EQ(row.edits_at, 2 + 3 * kChoiceRowWords);
  CHECK_EQ(row.edits, 4u);
  CHECK_EQ(row.counts, 2u);
  CHECK_EQ(row.counts_at, row.edits_at + 12);
  CHECK_EQ(block[row.edits_at + 3], 4u);
  CHECK_EQ(block[row.edits_at + 5], 1u);  // set
  CHECK_EQ(block[row.edits_at + 8], 0u);  // added
  CHECK_EQ(block[row.counts_at + 1], 5u);
  CHECK_EQ(block[row.counts_at + 3], 0u);
  CHECK_EQ(block[row.counts_at + 4], 0x3ffu);
  CHECK_EQ(block[row.counts_at + 5], 7u);
  CHECK_EQ(block[kEnd], 0xdeadu);
  std::memcpy(static_cast<void*>(&row), &block[2 + 2 * kChoiceRowWords], sizeof(row));
  CHECK_EQ(row.flags, kernels::kChoiceToken | kernels::kChoiceRead);
  CHECK_EQ(row.seed, 0u);
  choices[0].top_k = 0;
  CHECK(WriteChoices(step, 2, kEnd, block.data(), outcomes).races);
  // One word too few: the first row is read, and writes no list.
  std::fill(block.begin(), block.end(), 0xdead);
  work = WriteChoices(step, 2, kEnd - 1, block.data(), outcomes);
  CHECK_EQ(work.end, 2 + 3 * kChoiceRowWords);
  CHECK(!work.races);
  CHECK(outcomes[0].read && !outcomes[0].told);
  CHECK_EQ(block[work.end], 0xdeadu);
  // No choices: all are read.
  step.choices = {};
  work = WriteChoices(step, 2, kEnd, block.data(), outcomes);
  CHECK(!work.races && outcomes[0].read && outcomes[2].read && !outcomes[2].told);
}

// What a GPU would hold that took the changes, against the lists themselves.
TEST(page_tables_as_changes) {
  constexpr uint32_t kTables = 3, kWords = 600, kPool = 1000;
  auto created = PageTables::Create(kTables, kWords, {{0, kPool}});
  CHECK_OK(created);
  PageTables& tables = *created;
  std::vector<uint32_t> gpu(kTables * kWords, 0), lists[2];
  backend::StepCache caches[2];
  backend::StepSequence sequences[2];
  backend::Step step;
  const auto set = [&](uint32_t first, uint32_t second) {
    for (int i = 0; i < 2; ++i) caches[i].pages = lists[i];
    sequences[0] = {absl::MakeConstSpan(&caches[0], 1), first};
    sequences[1] = {absl::MakeConstSpan(&caches[1], 1), second};
    step.sequences = sequences;
  };
  // The changes made, in takes of at most `room`.
  const auto take = [&](uint32_t room) {
    uint64_t all = 0;
    std::vector<kernels::PageChange> out(room);
    while (const uint32_t taken = tables.Take(step, room, out.data())) {
      for (uint32_t i = 0; i < taken; ++i) gpu[out[i].at] = out[i].page;
      all += taken;
    }
    return all;
  };
  const auto holds = [&](uint32_t table, const std::vector<uint32_t>& list) {
    return std::equal(list.begin(), list.end(), gpu.begin() + tables.Offset(table));
  };
  for (uint32_t i = 0; i < kWords; ++i) lists[0].push_back(i + 1);
  lists[1] = {5, 0, 7};  // the second is as it is
  set(2, 0);
  auto count = tables.Count(step);
  CHECK_OK(count);
  CHECK_EQ(*count, uint64_t{kWords + 2});
  CHECK_EQ(take(100), uint64_t{kWords + 2});
  CHECK(holds(2, lists[0]) && holds(0, lists[1]));
  // As before, but for a page more and one in the middle.
  lists[1].push_back(8);
  lists[0][300] = 999;
  set(2, 0);
  count = tables.Count(step);
  CHECK_OK(count);
  CHECK_EQ(*count, 2u);
  CHECK_EQ(take(1), 2u);
  CHECK(holds(2, lists[0]) && holds(0, lists[1]));
  CHECK_EQ(*tables.Count(step), 0u);
  // A shorter list changes nothing behind it; another sequence takes the table over.
  lists[0].resize(2);
  std::swap(lists[0], lists[1]);
  set(2, 0);
  CHECK_EQ(*tables.Count(step), 6u);
  CHECK_EQ(take(64), 6u);
  CHECK(holds(2, lists[0]) && holds(0, lists[1]));
  CHECK_EQ(gpu[tables.Offset(2) + 4], 5u);
  // Pages that are kept lie where the first ones do; those that the list has itself are no changes twice.
  const std::vector<uint32_t> kept = {70, 71, 72};
  lists[0] = {80, 81};
  set(1, 0);
  caches[0].first_page = 200;
  caches[0].kept = kept;
  CHECK_EQ(*tables.Count(step), 5u);
  CHECK_EQ(take(2), 5u);
  CHECK(holds(1, kept));
  CHECK_EQ(gpu[tables.Offset(1) + 201], 81u);
  lists[0] = {72, 90};
  set(1, 0);
  caches[0].first_page = 2;
  CHECK_EQ(*tables.Count(step), 1u);
  CHECK_EQ(take(64), 1u);
  CHECK_EQ(*tables.Count(step), 0u);
  caches[0] = {};
  // Refused, and nothing has changed.
  set(1, 1);
  CHECK(Holds(std::string(tables.Count(step).status().message()), "named twice"));
  set(1, kTables);
  CHECK(!tables.Count(step).ok());
  lists[0][1] = kPool;
  set(1, 2);
  CHECK(Holds(std::string(tables.Count(step).status().message()), "page 1000"));
  lists[0].assign(kWords + 1, 1);
  set(1, 2);
  CHECK(Holds(std::string(tables.Count(step).status().message()), "601 pages"));
  lists[0] = {};
  lists[1] = {1, 2};
  set(1, 0);
  CHECK_EQ(*tables.Count(step), 0u);
}

// Of a second cache, with slots between; its pages behind a window are gone, and what the table has of them
// stays.
TEST(page_tables_of_several_caches) {
  constexpr uint32_t kTables = 2, kWords = 40;
  auto tables = PageTables::Create(kTables, kWords, {{0, 9}, {2, 100}});
  CHECK_OK(tables);
  const uint32_t full[] = {3, 4, 5}, window[] = {70, 71};
  backend::StepCache caches[3];
  caches[0].pages = full;
  caches[2].pages = window;
  caches[2].first_page = 38;
  backend::Step step;
  const backend::StepSequence sequence = {absl::MakeConstSpan(caches), 1};
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  CHECK_EQ(*tables->Count(step), 5u);
  kernels::PageChange out[8];
  CHECK_EQ(tables->Take(step, 4, out), 4u);
  CHECK_EQ(tables->Take(step, 8, out + 4), 1u);
  const uint32_t behind = kTables * kWords;
  const kernels::PageChange want[] = {
      {kWords, 3}, {kWords + 1, 4}, {kWords + 2, 5}, {behind + kWords + 38, 70}, {behind + kWords + 39, 71}};
  for (int i = 0; i < 5; ++i) CHECK(out[i].at == want[i].at && out[i].page == want[i].page);
  CHECK_EQ(*tables->Count(step), 0u);
  caches[2].first_page = 39;
  CHECK(Holds(std::string(tables->Count(step).status().message()), "2 pages from page 39 on; a table has 40"));
  caches[2].first_page = 38;
  const uint32_t beyond[] = {3, 4, 9};
  caches[0].pages = beyond;
  CHECK(Holds(std::string(tables->Count(step).status().message()), "page 9 is not in the pool of 9"));
}

}  // namespace
}  // namespace mainarch::amdgpu
