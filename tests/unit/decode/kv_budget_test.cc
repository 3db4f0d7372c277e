// SPDX-License-Identifier: MIT
//
// How pages, windows and states of sequences share the memory there is, and what an engine does where it is little.
#include "decode/kv_budget.h"

#include "support/test.h"
#include "unit/decode/engine_user.h"

using namespace mainarch;
using namespace mainarch::decode;

TEST(pages_within_what_there_is_and_what_is_allowed) {
  const backend::KvRoom room = {1000, {10}};
  const auto within = [&](uint64_t pages, bool fixed, uint64_t memory_bytes) {
    return DemandWithin({{}}, {{pages, 1, 1, 0, 4}, fixed, 0}, BudgetOf(room, memory_bytes));
  };
  const auto pages = [&](uint64_t wanted, bool fixed, uint64_t memory_bytes) -> uint64_t {
    const auto demand = within(wanted, fixed, memory_bytes);
    return demand.ok() ? demand->pages : 0;
  };
  CHECK_EQ(pages(100, true, 0), 100u);
  CHECK_EQ(pages(101, true, 0), 0u);
  CHECK_EQ(pages(101, false, 0), 100u);
  CHECK_EQ(pages(101, false, 305), 30u);
  CHECK_EQ(pages(31, true, 305), 0u);
  CHECK_EQ(pages(30, true, 305), 30u);
  CHECK_EQ(pages(5, false, 9), 0u);
  CHECK_EQ(pages(200, false, 5000), 100u);  // the device has less
  CHECK_EQ(within(101, false, 0)->snapshots, 4u);  // which cost such a model nothing
  // Nothing is known.
  CHECK_EQ(DemandWithin({{}}, {{uint64_t{1} << 31, 1, 1}, true, 0}, BudgetOf({}, 0))->pages,
           uint64_t{1} << 31);
  const Status device = within(101, true, 0).status();
  CHECK(CodeOf(device) == Code::kOutOfDeviceMemory);
  CHECK(Says(device, "kv_tokens 1616 takes 1010 bytes: more than the 1000 of the device"));
  CHECK(Says(within(31, true, 305).status(), "more than the 305 of memory_bytes"));
  // No product of wild numbers comes round to a small one.
  const Budget wild = BudgetOf({uint64_t{1} << 40, {uint64_t{1} << 33, uint64_t{1} << 62}}, 0);
  CHECK(CodeOf(DemandWithin({{}, {true, 0}}, {{uint64_t{1} << 31, 1 << 16, 1}, true, 4}, wild)
                   .status()) == Code::kOutOfDeviceMemory);
}

// Pages of 10 bytes, of a window of 32 tokens 7 (4 pages a sequence and snapshot), slots of 100.
TEST(pages_windows_and_slots_share_what_there_is) {
  const std::vector<model::CacheForm> forms = {{false, 0}, {false, 32}, {true, 0}};
  const backend::KvRoom room = {1'000'000, {10, 7, 100}};
  PoolWish wish = {{1000, 2, 16, 1, 3}, false, 0};
  const auto bytes = [&](const model::CacheDemand& demand) {
    PoolWish w = wish;
    w.demand = demand;
    return PoolBytes(*PoolSizes(forms, w), BudgetOf(room, 0));
  };
  // Slots: 2 sequences * (2 + 1 draft + snapshots); windows: 2 * (3 * (1 + snapshots) + 2) + 1.
  const auto plain = [&](uint64_t pages, uint64_t snapshots) {
    return pages * 10 + std::min<uint64_t>(2 * (3 * (1 + snapshots) + 2) + 1, pages) * 7 +
           2 * (3 + snapshots) * 100;
  };
  CHECK_EQ(bytes(wish.demand), plain(1000, 3));
  for (uint64_t memory = 1; memory <= plain(1000, 3) + 1; ++memory) {
    const auto demand = DemandWithin(forms, wish, BudgetOf(room, memory));
    if (memory < plain(1, 0)) {
      CHECK(CodeOf(demand.status()) == Code::kOutOfDeviceMemory);
      continue;
    }
    CHECK_OK(demand);
    CHECK_LE(bytes(*demand), memory);
    // Not one page, nor one snapshot, less than there is room for; snapshots go before pages.
    if (demand->snapshots < 3) CHECK_GT(plain(demand->pages, demand->snapshots + 1), memory);
    if (demand->pages < 1000) {
      CHECK_EQ(demand->snapshots, 0u);
      CHECK_GT(plain(demand->pages + 1, 0), memory);
    }
  }
  const Status least = DemandWithin(forms, wish, BudgetOf(room, plain(1, 0) - 1)).status();
  CHECK(Says(least, "kv_tokens 16 with the states and windows of 2 sequences (max_sequences) takes " +
                        std::to_string(plain(1, 0)) + " bytes: more than the " +
                        std::to_string(plain(1, 0) - 1) + " of memory_bytes"));
  // The device's room counts alike.
  const Budget device = BudgetOf({plain(1000, 0), room.unit_bytes}, 0);
  CHECK_EQ(DemandWithin(forms, wish, device)->snapshots, 0u);
  CHECK_EQ(DemandWithin(forms, wish, device)->pages, 1000u);
  // A number of pages that the caller named stays; so does one of slots, and snapshots with it.
  wish.fixed_pages = true;
  CHECK_OK(DemandWithin(forms, wish, BudgetOf(room, plain(1000, 0))));
  CHECK(Says(DemandWithin(forms, wish, BudgetOf(room, plain(1000, 0) - 1)).status(), "16000"));
  wish.fixed_pages = false;
  wish.state_slots = 8;
  const auto named = DemandWithin({forms[0], forms[2]}, wish, BudgetOf({5000, {10, 100}}, 0));
  CHECK_OK(named);
  CHECK_EQ(named->pages, 420u);
  CHECK_EQ(named->snapshots, 3u);
  CHECK(Says(DemandWithin(forms, wish, BudgetOf(room, 816)).status(), "8 state_slots takes 817"));
  // What is beside the caches leaves them less.
  Budget beside = BudgetOf({5000, {10, 100}}, 0);
  beside.beside = 200;
  CHECK_EQ(DemandWithin({forms[0], forms[2]}, wish, beside)->pages, 400u);
  beside.beside = 5001;
  CHECK(Says(DemandWithin({forms[0], forms[2]}, wish, beside).status(), "and activations 5001"));
}

TEST(numbers_of_slots_and_pages_have_bounds) {
  const std::vector<model::CacheForm> forms = {{false, 0}, {true, 0}};
  const auto code = [&](const std::vector<model::CacheForm>& of, const PoolWish& wish) {
    return CodeOf(PoolSizes(of, wish).status());
  };
  CHECK(code(forms, {{10, 4, 16, 1, 2}, false, 12}) == Code::kOk);
  CHECK(code(forms, {{10, 4, 16, 1, 2}, false, 11}) == Code::kInvalidArgument);
  CHECK(Says(PoolSizes(forms, {{10, 4, 16, 1, 2}, false, 11}).status(),
             "state_slots 11 is not from 12 to 2147483648"));
  CHECK(code(forms, {{10, 4, 16, 1, 2}, false, (1u << 31) + 1}) == Code::kInvalidArgument);
  // Windows alone, of many sequences with many snapshots.
  const PoolWish many = {{10, 1 << 16, 16, 0, 256}, false, 0};
  CHECK(code({{false, 1 << 20}}, many) == Code::kInvalidArgument);
  CHECK(Says(PoolSizes({{false, 1 << 20}}, many).status(), "65536 sequences (max_sequences)"));
}

// The fake context takes 16 bytes a token and nothing else.
TEST(a_pool_shrinks_until_the_budget_suffices) {
  test::FakeModel model(90);
  EngineOptions options;
  options.max_sequences = 4;
  options.max_sequence_tokens = 100;  // 28 pages
  auto engine = CreateEngine(nullptr, model, {90, 4096, {}}, options);
  CHECK_OK(engine);
  const uint64_t all = (*engine)->info().memory_bytes;
  CHECK_EQ((*engine)->info().kv_tokens_total, 28u * 16);
  options.memory_bytes = all - 1;
  engine = CreateEngine(nullptr, model, {90, 4096, {}}, options);
  CHECK_OK(engine);
  CHECK_EQ((*engine)->info().kv_tokens_total, 27u * 16);
  CHECK_LE((*engine)->info().memory_bytes, options.memory_bytes);
  options.kv_tokens = 28 * 16;
  engine = CreateEngine(nullptr, model, {90, 4096, {}}, options);
  CHECK(CodeOf(engine.status()) == Code::kOutOfDeviceMemory);
  CHECK(Says(engine.status(), "memory_bytes"));
}

// Of everything that an engine has: whatever it is given, it takes no more, runs, and gives up the
// least. FakeModel's pages take 128 bytes, its slots 16.
TEST(an_engine_with_states_and_windows_keeps_to_its_memory) {
  const test::CacheForms forms = {{true, 0}, {false, 0}, {false, 40}};
  test::FakeModel model(41, forms);
  const ModelFacts facts = {41, 1000, {}, forms};
  model.control.beside_bytes = 1000;
  EngineOptions o;
  o.max_sequences = 3;
  o.max_sequence_tokens = 100;
  o.max_step_tokens = 16;
  const uint64_t all = (*CreateEngine(nullptr, model, facts, o))->info().memory_bytes;
  // 3 slots * 2, one page each.
  const uint64_t least = 1000 + 6 * 16 + 2 * 128;
  uint64_t pages_before = 0;
  for (uint64_t memory = least - 1; memory <= all; memory += memory < least ? 1 : 37) {
    o.memory_bytes = memory;
    auto engine = CreateEngine(nullptr, model, facts, o);
    if (memory < least) {
      CHECK(CodeOf(engine.status()) == Code::kOutOfDeviceMemory);
      CHECK(Says(engine.status(), "takes 352 bytes and activations 1000: more than the 1351"));
      continue;
    }
    CHECK_OK(engine);
    const EngineInfo info = (*engine)->info();
    CHECK_LE(info.memory_bytes, memory);
    CHECK_GE(info.kv_tokens_total, pages_before);
    pages_before = info.kv_tokens_total;
    std::vector<SequenceId> ids;
    for (uint32_t i = 0; i < 3; ++i) {
      const auto id = (*engine)->Open({});
      CHECK_OK(id);
      CHECK_OK((*engine)->Append(*id, {1, 2, 3, i}));
    }
    for (int i = 0; i < 60; ++i) {
      CHECK_OK((*engine)->RunStep());
    }
  }
  CHECK_EQ(pages_before, 21u * 16);
  // Without a limit of the caller's it is the device's, activations counted.
  o.memory_bytes = 0;
  model.control.room.bytes = least + 500;
  auto engine = CreateEngine(nullptr, model, facts, o);
  CHECK_OK(engine);
  CHECK_LE((*engine)->info().memory_bytes, least + 500);
  CHECK_EQ((*engine)->info().kv_tokens_total, 32u);
  model.control.room.bytes = least - 1;
  engine = CreateEngine(nullptr, model, facts, o);
  CHECK(Says(engine.status(), "1351 of the device"));
  // Slots that the caller named are neither fewer than needed nor given up.
  model.control.room.bytes = UINT64_MAX;
  o.state_slots = 5;
  engine = CreateEngine(nullptr, model, facts, o);
  CHECK(CodeOf(engine.status()) == Code::kInvalidArgument);
  CHECK(Says(engine.status(), "state_slots 5 is not from 6"));
  o.state_slots = 60;
  o.memory_bytes = least + 54 * 16;
  engine = CreateEngine(nullptr, model, facts, o);
  CHECK_OK(engine);
  CHECK_EQ((*engine)->info().memory_bytes, o.memory_bytes);
  --o.memory_bytes;
  engine = CreateEngine(nullptr, model, facts, o);
  CHECK(Says(engine.status(), "60 state_slots"));
  CHECK_EQ(model.control.Violations(), "");
}
