// SPDX-License-Identifier: MIT
//
// What is not undone by running again: drafts, steps ahead, states, snapshots, windows.
#include <cmath>

#include "support/test.h"
#include "unit/decode/engine_bench.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

// Knows what will come, but for every `wrong`-th token of a sequence.
struct Prophet final : DraftSource {
  std::vector<uint32_t> tokens;
  uint32_t wrong = UINT32_MAX;

  size_t Propose(uint32_t, absl::Span<const uint32_t> held, absl::Span<uint32_t> out) override {
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t at = held.size() + i;
      if (at >= tokens.size()) return i;
      out[i] = at % wrong == 0 ? tokens[at] ^ 1 : tokens[at];
    }
    return out.size();
  }
};

}  // namespace

TEST(right_drafts_take_fewer_steps_and_wrong_ones_change_nothing) {
  SequenceOptions o;
  o.max_tokens = 40;
  o.ignore_eos = true;
  o.temperature = 1;
  o.repetition_penalty = 1.2f;
  o.frequency_penalty = 0.3f;
  const std::vector<uint32_t> expected = Expected(o, {1, 2, 3}, 40);
  for (const auto& [wrong, steps] : {std::pair{UINT32_MAX, 10u}, {1u, 40u}, {5u, 20u}}) {
    auto prophet = std::make_shared<Prophet>();
    prophet->tokens = {1, 2, 3};
    prophet->tokens.insert(prophet->tokens.end(), expected.begin(), expected.end());
    prophet->wrong = wrong;
    EngineOptions options = Options(1, 100, 16);
    options.drafts = prophet;
    options.max_drafts = 4;
    Bench bench(options);
    const SequenceId id = bench.Open(o, {1, 2, 3});
    CHECK(bench.Drain());
    CHECK(bench.TakeAll(id) == expected);
    CHECK_LE(bench.engine->info().steps, steps);
    CHECK_GE(bench.engine->info().steps, steps / 2);
    CHECK_EQ(bench.model.control.Violations(), "");
  }
}

// Wrong guesses take pages that go back with the very step.
TEST(pages_of_rejected_drafts_are_free_at_once) {
  struct Liar final : DraftSource {
    size_t Propose(uint32_t, absl::Span<const uint32_t>, absl::Span<uint32_t> out) override {
      for (uint32_t& token : out) token = 5;
      return out.size();
    }
  };
  test::FakeModel model(41);
  EngineOptions o;
  o.max_sequence_tokens = 400;
  o.max_step_tokens = 64;
  o.drafts = std::make_shared<Liar>();
  o.max_drafts = 40;
  auto engine = CreateEngine(nullptr, model, {41, 1000, {}}, o);
  CHECK_OK(engine);
  SequenceOptions options;
  options.logit_bias = {{5, -INFINITY}};  // never right
  const auto id = (*engine)->Open(options);
  CHECK_OK(id);
  CHECK_OK((*engine)->Append(*id, {1, 2, 3}));
  for (int i = 0; i < 60; ++i) {
    CHECK_OK((*engine)->RunStep());
    const auto info = (*engine)->InfoOf(*id);
    CHECK_OK(info);
    CHECK_EQ(info->position, static_cast<uint64_t>(3 + i));
    const EngineInfo all = (*engine)->info();
    CHECK_EQ(all.kv_tokens_total - all.kv_tokens_free, (info->position + 15) / 16 * 16);
  }
  CHECK_GT(model.control.max_rows_seen.load(), 30u);
}

// What flies was planned without it, so it is dropped: nobody waits a step for that.
TEST(a_new_sequence_runs_in_the_next_step) {
  test::FakeModel model(41);
  model.control.in_flight = 2;
  EngineOptions o;
  o.max_sequences = 2;
  o.max_sequence_tokens = 100;
  auto engine = CreateEngine(nullptr, model, {41, 1000, {}}, o);
  CHECK_OK(engine);
  const auto first = (*engine)->Open({});
  CHECK_OK((*engine)->Append(*first, {1, 2, 3}));
  while ((*engine)->info().ahead < 3) CHECK_OK((*engine)->RunStep());
  const auto second = (*engine)->Open({});
  CHECK_OK((*engine)->Append(*second, {4, 5}));
  const uint64_t before = (*engine)->InfoOf(*first)->position;
  CHECK_OK((*engine)->RunStep());
  CHECK_EQ((*engine)->InfoOf(*second)->position, 2u);
  CHECK_EQ((*engine)->InfoOf(*first)->position, before + 1);
  CHECK_EQ(model.control.Violations(), "");
}

// Neither beyond a sequence's end, nor when another one has come.
TEST(rounds_run_no_further_than_they_are_wanted) {
  test::FakeModel model(41);
  model.control.in_flight = 2;
  model.control.rounds = 12;
  model.control.steady = true;
  EngineOptions o;
  o.max_sequences = 2;
  o.max_sequence_tokens = 100;
  auto engine = CreateEngine(nullptr, model, {41, 1000, {}}, o);
  CHECK_OK(engine);
  SequenceOptions options;
  options.max_tokens = 60;
  const auto alone = (*engine)->Open(options);
  CHECK_OK((*engine)->Append(*alone, {1, 2, 3}));
  for (bool more = true; more; more = *(*engine)->RunStep()) {
  }
  CHECK_EQ((*engine)->info().produced, 60u);
  CHECK_EQ(model.control.runs.load(), 60);
  CHECK_GT(model.control.rounds_run.load(), 50);
  CHECK_EQ(model.control.granted.load(), model.control.rounds_run.load());
  CHECK_OK((*engine)->Close(*alone));
  for (int turn = 0; turn < 5; ++turn) {
    const auto first = (*engine)->Open(options);
    CHECK_OK((*engine)->Append(*first, {1, 2, 3}));
    for (int i = 0; i < 3 + turn; ++i) CHECK_OK((*engine)->RunStep());
    const auto second = (*engine)->Open(options);
    CHECK_OK((*engine)->Append(*second, {4, 5}));
    const int64_t runs = model.control.runs.load();
    CHECK_OK((*engine)->RunStep());
    // This step, and at most what had begun.
    CHECK_LE(model.control.runs.load(), runs + 2);
    CHECK_OK((*engine)->Close(*first));
    CHECK_OK((*engine)->Close(*second));
  }
  CHECK_EQ(model.control.Violations(), "");
}

// Seven at a time, each with a slot of its own; fewer where there are fewer slots, which sequences share, and none where there
// is none to spare: in steps of the engine's own as ever.
TEST(rounds_of_a_model_with_states_are_as_many_as_it_has_slots_for) {
  const struct {
    uint32_t sequences, snapshots, state_slots, rounds;
  } cases[] = {{1, 4, 0, 7}, {2, 0, 0, 7}, {1, 0, 40, 12}, {1, 0, 6, 3}, {2, 1, 13, 2}, {2, 1, 8, 0}, {2, 0, 4, 0}};
  for (const auto& one : cases) {
    test::FakeModel model(41, {{false, 0}, {true, 0}});
    model.control.in_flight = 2;
    model.control.rounds = 12;
    model.control.steady = true;
    EngineOptions o;
    o.max_sequences = one.sequences;
    o.max_sequence_tokens = 100;
    o.snapshots = one.snapshots;
    o.state_slots = one.state_slots;
    o.resident = backend::ResidentMode::kAuto;
    auto engine = CreateEngine(nullptr, model, {41, 1000, {}, {{false, 0}, {true, 0}}}, o);
    CHECK_OK(engine);
    for (uint32_t i = 0; i < one.sequences; ++i) {
      SequenceOptions options;
      options.max_tokens = 61;
      const auto id = (*engine)->Open(options);
      CHECK_OK(id);
      CHECK_OK((*engine)->Append(*id, {1, 2, 3}));
    }
    for (bool more = true; more; more = *(*engine)->RunStep()) {
    }
    CHECK_EQ((*engine)->info().produced, uint64_t{61} * one.sequences);
    // A prompt's step and a step ahead with its rounds, as often as it takes.
    const int64_t leases = (61 - 1 + one.rounds) / (1 + one.rounds);
    CHECK_EQ(model.control.rounds_run.load(), 61 - 1 - leases);
    CHECK_EQ(model.control.Violations(), "");
  }
}

TEST(snapshots_are_given_up_where_memory_is_short) {
  test::FakeModel model(41, {{false, 0}, {true, 0}});
  const ModelFacts facts = {41, 1000, {}, {{false, 0}, {true, 0}}};
  EngineOptions o;
  o.max_sequences = 8;
  o.max_sequence_tokens = 64;
  o.snapshots = 200;
  auto all = CreateEngine(nullptr, model, facts, o);
  CHECK_OK(all);
  const uint64_t pages = (*all)->info().kv_tokens_total;
  o.snapshots = 3;
  auto few = CreateEngine(nullptr, model, facts, o);
  CHECK_OK(few);
  o.snapshots = 200;
  o.memory_bytes = (*few)->info().memory_bytes;
  auto less = CreateEngine(nullptr, model, facts, o);
  CHECK_OK(less);
  CHECK_EQ((*less)->info().kv_tokens_total, pages);  // no page was given up for a snapshot
  CHECK_LE((*less)->info().memory_bytes, o.memory_bytes);
  CHECK_LT((*less)->info().memory_bytes, (*all)->info().memory_bytes);
}

TEST(a_model_with_states_goes_back_to_the_nearest_snapshot) {
  SequenceOptions o;
  o.max_tokens = 60;
  o.ignore_eos = true;
  EngineOptions options = Options(2, 200, 100);
  options.snapshot_tokens = 16;
  options.snapshots = 4;
  const test::CacheForms forms = {{true, 0}};
  Bench bench(options, {}, forms);
  const std::vector<uint32_t> prompt(40, 7);
  const SequenceId id = bench.Open(o, prompt);
  CHECK(bench.Drain());
  const std::vector<uint32_t> all = bench.TakeAll(id);
  CHECK_EQ(all.size(), 60u);
  CHECK_EQ(bench.Info(id).position, 99u);
  // 39, one before the prompt's end, is kept, and so is what is not long ago.
  for (const auto& [at, from] : {std::pair{98u, 96u}, {60u, 59u}, {40u, 39u}, {20u, 19u}}) {
    CHECK_OK(bench.engine->Truncate(id, at));
    CHECK_LE(bench.Info(id).position, from);
    if (at == 98 || at == 40) CHECK_EQ(bench.Info(id).position, from);
    CHECK(bench.Drain());
    const std::vector<uint32_t> again = bench.TakeAll(id);
    if (at >= 40) CHECK(std::equal(again.rbegin(), again.rend(), all.rbegin()));
  }
  CHECK_OK(bench.engine->Close(id));
  for (const model::CachePool& pool : static_cast<EngineImpl&>(*bench.engine).pools()) {
    CHECK_EQ(pool.units.free_pages(), pool.units.total());
  }
  CHECK_EQ(bench.model.control.Violations(), "");
}

TEST(pages_behind_a_window_go_back_to_the_pool) {
  SequenceOptions o;
  o.max_tokens = 150;
  o.ignore_eos = true;
  EngineOptions options = Options(1, 400, 64);
  options.snapshots = 0;
  Bench bench(options, {}, {{false, 0}, {false, 20}});
  const SequenceId id = bench.Open(o, std::vector<uint32_t>(100, 3));
  const auto held = [&](size_t cache) {
    const model::PagePool& pool = static_cast<EngineImpl&>(*bench.engine).pools()[cache].units;
    return pool.total() - pool.free_pages();
  };
  while (bench.Step()) {
    CHECK_EQ(held(0), model::PagesFor(bench.Info(id).position));
    CHECK_LE(held(1), 3u);
  }
  CHECK_EQ(bench.Info(id).produced, 150u);
  // Nothing to stand on is left a hundred tokens back: all is run again, with the same outcome.
  const std::vector<uint32_t> all = bench.TakeAll(id);
  CHECK_OK(bench.engine->Truncate(id, 150));
  CHECK_EQ(bench.Info(id).position, 0u);
  CHECK(bench.Drain());
  const std::vector<uint32_t> again = bench.TakeAll(id);
  CHECK(std::equal(all.begin() + 50, all.end(), again.begin(), again.begin() + 100));
  CHECK_EQ(bench.model.control.Violations(), "");
}
