// SPDX-License-Identifier: MIT
//
// Tokens guessed ahead, by the model's own head or by what was said before: how many count, what is
// said of them, and that no token and no distribution is another. (engine_property_test.cc plays
// heads beside all else that can be done to sequences.)
//
// MAINARCH_TEST_FULL: 100,000 tokens in the comparison of distributions, else 6,000.
#include <cmath>
#include <cstdlib>
#include <map>

#include "decode/ngram_drafts.h"
#include "support/checkpoint_files.h"
#include "support/fake_head.h"
#include "support/test.h"
#include "unit/decode/engine_user.h"
#include "unit/decode/hybrid_model.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr uint32_t kVocab = 61;

EngineOptions With(DraftKind kind, uint32_t drafts) {
  EngineOptions o;
  o.max_sequences = 4;
  o.max_sequence_tokens = 200;
  o.max_step_tokens = 24;
  o.draft_kind = kind;
  o.max_drafts = drafts;
  return o;
}

SequenceOptions Drawn(uint64_t seed, uint32_t tokens) {
  SequenceOptions o;
  o.ignore_eos = true;
  o.seed = seed;
  o.temperature = 1;
  o.max_tokens = tokens;
  return o;
}

// A fake model with a head.
struct Headed {
  explicit Headed(const EngineOptions& options, uint32_t wrong, const test::CacheForms& forms = {{}},
                  uint32_t in_flight = 1)
      : model(kVocab, forms) {
    control.wrong = wrong;
    model.control.in_flight = in_flight;
    test::UseFakeHead(&model, &control, kVocab, forms);
    ModelFacts facts = {kVocab, 4096, {3}, forms};
    facts.head_caches = test::HeadForms();
    auto made = CreateEngine(nullptr, model, facts, options);
    status = made.status();
    if (made.ok()) engine = *std::move(made);
  }

  test::FakeModel model;
  test::HeadControl control;
  Status status;
  std::unique_ptr<Engine> engine;
};

// Appends a prompt, runs to the end; the tokens.
std::vector<uint32_t> Write(Engine& engine, const SequenceOptions& options,
                            const std::vector<uint32_t>& prompt) {
  std::vector<uint32_t> out(4096);
  const auto id = engine.Open(options);
  if (!id.ok() || !engine.Append(*id, prompt).ok()) return {};
  while (true) {
    const auto worked = engine.RunStep();
    if (!worked.ok()) return {};
    if (!*worked) break;
  }
  const auto n = engine.Take(*id, absl::MakeSpan(out));
  out.resize(n.ok() ? *n : 0);
  if (!engine.Close(*id).ok()) return {};
  return out;
}

std::vector<uint32_t> Prompt(size_t tokens) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < tokens; ++i) out.push_back(static_cast<uint32_t>((i * i + 5) % kVocab));
  return out;
}

std::vector<uint32_t> Proposed(const std::vector<uint32_t>& tokens, size_t most) {
  NgramDrafts drafts;
  std::vector<uint32_t> out(most);
  out.resize(drafts.Propose(0, tokens, absl::MakeSpan(out)));
  return out;
}

}  // namespace

TEST(a_perfect_head_is_always_right) {
  for (const uint32_t drafts : {1u, 2u, 3u, 4u}) {
    for (const uint32_t in_flight : {1u, 2u}) {
      Headed with(With(DraftKind::kHead, drafts), 0, {{}}, in_flight);
      CHECK_OK(with.status);
      // Chunks of 24 first, which the head has to take in.
      const uint32_t tokens = 1 + 12 * (1 + drafts);
      const auto out = Write(*with.engine, Drawn(7, tokens), Prompt(50));
      CHECK_EQ(out.size(), size_t{tokens});
      const EngineInfo info = with.engine->info();
      CHECK_EQ(info.steps, 3u + 12u);
      CHECK_EQ(info.drafts, uint64_t{12} * drafts);
      CHECK_EQ(info.drafts_accepted, info.drafts);
      for (uint32_t i = 0; i < kCountedDrafts; ++i) {
        CHECK_EQ(info.drafts_at[i], i < drafts ? 12u : 0u);
        CHECK_EQ(info.drafts_accepted_at[i], info.drafts_at[i]);
      }
      CHECK_EQ(info.ahead, 0u);
      CHECK_EQ(with.model.control.Violations(), "");
      EngineUser plain(kVocab, With(DraftKind::kNone, 0), {3}, {{}});
      CHECK_EQ(Write(*plain.engine, Drawn(7, tokens), Prompt(50)) == out, true);
    }
  }
}

TEST(a_head_that_knows_nothing_changes_nothing) {
  for (const bool nan : {false, true}) {
    Headed with(With(DraftKind::kHead, 3), 8, {{false, 0}, {true, 0}});
    CHECK_OK(with.status);
    with.control.nan = nan;
    EngineUser plain(kVocab, With(DraftKind::kNone, 0), {3}, {{false, 0}, {true, 0}});
    for (const float temperature : {0.0f, 1.0f}) {
      SequenceOptions options = Drawn(9, 60);
      options.temperature = temperature;
      const auto out = Write(*with.engine, options, Prompt(30));
      CHECK_EQ(out.size(), 60u);
      CHECK(out == Write(*plain.engine, options, Prompt(30)));
    }
    const EngineInfo info = with.engine->info();
    CHECK_GT(info.drafts, 200u);
    CHECK_LT(info.drafts_accepted, info.drafts / 8);
    uint64_t at = 0, accepted = 0;
    for (uint32_t i = 0; i < kCountedDrafts; ++i) {
      at += info.drafts_at[i];
      accepted += info.drafts_accepted_at[i];
    }
    CHECK_EQ(at, info.drafts);
    CHECK_EQ(accepted, info.drafts_accepted);
    CHECK_EQ(with.model.control.Violations(), "");
  }
}

TEST(a_head_that_fails_ends_the_step_and_nothing_else) {
  Headed with(With(DraftKind::kHead, 3), 0);
  CHECK_OK(with.status);
  const auto id = with.engine->Open(Drawn(5, 40));
  CHECK_OK(id);
  CHECK_OK(with.engine->Append(*id, Prompt(20)));
  CHECK_OK(with.engine->RunStep());
  // Each of the three guesses, and what takes in the step's rows.
  for (int64_t run = 0; run < 4; ++run) {
    const SequenceInfo before = *with.engine->InfoOf(*id);
    with.control.fail_run = with.control.runs + run;
    CHECK_REFUSED(with.engine->RunStep(), Code::kDeviceLost, "injected failure of a run of the head");
    const SequenceInfo after = *with.engine->InfoOf(*id);
    CHECK_EQ(after.tokens, before.tokens);
    CHECK_EQ(after.position, before.position);
  }
  with.control.fail_run = -1;
  while (*with.engine->RunStep()) {
  }
  std::vector<uint32_t> out(40);
  CHECK_EQ(*with.engine->Take(*id, absl::MakeSpan(out)), 40u);
  EngineUser plain(kVocab, With(DraftKind::kNone, 0), {3}, {{}});
  CHECK(out == Write(*plain.engine, Drawn(5, 40), Prompt(20)));
  CHECK_EQ(with.model.control.Violations(), "");
}

TEST(the_caches_of_a_head_count) {
  Headed with(With(DraftKind::kHead, 3), 0);
  CHECK_OK(with.status);
  const uint64_t bytes = with.engine->info().memory_bytes;
  EngineUser plain(kVocab, With(DraftKind::kNone, 0), {3}, {{}});
  CHECK_GT(bytes, plain.engine->info().memory_bytes);
  EngineOptions smaller = With(DraftKind::kHead, 3);
  smaller.memory_bytes = bytes / 2;
  Headed less(smaller, 0);
  CHECK_OK(less.status);
  CHECK_LT(less.engine->info().memory_bytes, bytes / 2 + 1);
  CHECK_LT(less.engine->info().kv_tokens_total, with.engine->info().kv_tokens_total);
}

TEST(who_drafts_is_said) {
  const auto made = [](DraftKind kind, uint32_t drafts, bool head) {
    ModelFacts facts = {kVocab, 4096, {3}};
    Headed model(With(DraftKind::kNone, 0), 0);
    if (head) facts.head_caches = test::HeadForms();
    auto engine = CreateEngine(nullptr, model.model, facts, With(kind, drafts));
    if (!engine.ok()) return StatusOr<EngineInfo>(engine.status());
    return StatusOr<EngineInfo>((*engine)->info());
  };
  CHECK_EQ(made(DraftKind::kAuto, 0, true)->draft_kind == DraftKind::kHead, true);
  CHECK_EQ(made(DraftKind::kAuto, 0, false)->draft_kind == DraftKind::kNgram, true);
  CHECK_EQ(made(DraftKind::kAuto, 0, false)->max_drafts, 3u);
  CHECK_EQ(made(DraftKind::kNone, 5, true)->max_drafts, 0u);
  CHECK_REFUSED(made(DraftKind::kHead, 1, false), Code::kInvalidArgument, "the model has none");
  CHECK_REFUSED(made(DraftKind::kNgram, 9, false), Code::kInvalidArgument, "max_drafts 9", "8");
}

TEST(ngrams_go_on_as_before) {
  const std::vector<uint32_t> nothing, new_token = {1, 2, 3, 4};
  CHECK(Proposed(nothing, 3).empty() && Proposed({5}, 3).empty());
  CHECK(Proposed(new_token, 3).empty());
  // The longest, though a shorter one stands nearer; of equals the nearest.
  CHECK(Proposed({1, 2, 3, 9, 8, 3, 7, 1, 2, 3}, 2) == (std::vector<uint32_t>{9, 8}));
  CHECK(Proposed({3, 5, 0, 3, 6, 0, 3}, 1) == (std::vector<uint32_t>{6}));
  CHECK(Proposed({4, 3, 5, 6, 3, 7, 3}, 1) == (std::vector<uint32_t>{7}));
  // Beyond the end it goes round.
  CHECK(Proposed({9, 1, 2, 1, 2}, 5) == (std::vector<uint32_t>{1, 2, 1, 2, 1}));
  // No further back than the limit.
  std::vector<uint32_t> far(NgramDrafts::kLookBack + 2, 0);
  for (size_t i = 0; i < far.size(); ++i) far[i] = static_cast<uint32_t>(1000 + i);
  far[0] = far.back();
  CHECK(Proposed(far, 3).empty());
  far[3] = far.back();
  CHECK_EQ(Proposed(far, 1).at(0), far[4]);
}

TEST(ngrams_change_nothing) {
  EngineUser with(kVocab, With(DraftKind::kNgram, 4), {3}, {{}});
  EngineUser plain(kVocab, With(DraftKind::kNone, 0), {3}, {{}});
  CHECK_OK(with.status);
  SequenceOptions options = Drawn(4, 120);
  options.logit_bias = {{8, 7.5f}, {9, 7.5f}};  // says little else
  std::vector<uint32_t> prompt = {8, 9, 8, 9, 8, 9};
  CHECK(Write(*with.engine, options, prompt) == Write(*plain.engine, options, prompt));
  const EngineInfo info = with.engine->info();
  CHECK_GT(info.drafts_accepted, 10u);
  CHECK_LT(info.steps, plain.engine->info().steps);
}

// What is sampled behind drafts against what is sampled without: the second and third token of many
// seeds, whose distributions must be one (chi square, each at 1e-4).
TEST(drafts_leave_distributions_alone) {
  const char* const full = std::getenv("MAINARCH_TEST_FULL");
  const uint32_t seeds = full != nullptr ? 50'000 : 3'000;
  EngineOptions options = With(DraftKind::kHead, 2);
  options.max_step_tokens = 8;
  Headed with(options, 4);
  CHECK_OK(with.status);
  EngineUser plain(kVocab, With(DraftKind::kNone, 0), {3}, {{}});
  SequenceOptions drawn = Drawn(0, 3);
  drawn.top_k = 3;
  drawn.temperature = 2;
  std::map<std::pair<size_t, uint32_t>, std::array<double, 2>> counts;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    drawn.seed = seed;
    const auto a = Write(*with.engine, drawn, {1, 2, 3});
    drawn.seed = seed + (UINT64_C(1) << 32);  // others, or they would be the same tokens
    const auto b = Write(*plain.engine, drawn, {1, 2, 3});
    CHECK_EQ(a.size() + b.size(), 6u);
    for (size_t i = 1; i < 3; ++i) {
      ++counts[{i, a[i]}][0];
      ++counts[{i, b[i]}][1];
    }
  }
  for (size_t i = 1; i < 3; ++i) {
    double chi = 0, freedom = -1;
    for (const auto& [key, n] : counts) {
      if (key.first != i || n[0] + n[1] < 10) continue;
      chi += (n[0] - n[1]) * (n[0] - n[1]) / (n[0] + n[1]);
      ++freedom;
    }
    CHECK_GT(freedom, 2);
    // Wilson and Hilferty: 3.72 standard deviations.
    const double v = 2 / (9 * freedom), limit = freedom * std::pow(1 - v + 3.72 * std::sqrt(v), 3);
    CHECK_LT(chi, limit);
  }
  CHECK_GT(with.engine->info().drafts_accepted, seeds / 4);
  CHECK_EQ(with.model.control.Violations(), "");
}

// A head of real layers: the same tokens as without, prefix hits, forks and truncation among them.
TEST(a_hybrid_writes_the_same_with_its_head) {
  const std::string directory = test::ScratchDirectory() + "/hybrid";
  CHECK_OK(test::WriteHybrid(directory));
  auto headless = test::LoadHybrid(directory, /*draft_head=*/false);
  CHECK_OK(headless);
  CHECK_EQ((*headless)->weights().programs().size(), 1u);
  EngineOptions options = With(DraftKind::kHead, 3);
  CHECK_REFUSED(Engine::Create(*headless, options), Code::kInvalidArgument, "opened without");
  auto headed = test::LoadHybrid(directory, /*draft_head=*/true);
  CHECK_OK(headed);
  CHECK_GT((*headed)->weights().weight_bytes(), (*headless)->weights().weight_bytes());
  options.prefix_cache = true;
  auto with = Engine::Create(*headed, options);
  CHECK_OK(with);
  options.draft_kind = DraftKind::kNone;
  options.prefix_cache = false;
  auto plain = Engine::Create(*headless, options);
  CHECK_OK(plain);
  std::vector<uint32_t> prompt = Prompt(40);
  for (const float temperature : {0.0f, 0.8f, 0.8f}) {
    SequenceOptions drawn = Drawn(3, 30);
    drawn.temperature = temperature;
    const auto out = Write(**with, drawn, prompt);
    CHECK_EQ(out.size(), 30u);
    CHECK(out == Write(**plain, drawn, prompt));
  }
  const EngineInfo info = (*with)->info();
  CHECK_EQ(info.prefix_hits, 2u);
  CHECK_GT(info.drafts, 100u);
  // The same guesses from two ranks.
  auto ranks = test::LoadHybrid(directory, /*draft_head=*/true, "cpu:2");
  CHECK_OK(ranks);
  auto two = Engine::Create(*ranks, With(DraftKind::kHead, 3));
  auto one = Engine::Create(*headed, With(DraftKind::kHead, 3));
  CHECK_OK(two);
  CHECK_OK(one);
  CHECK(Write(**two, Drawn(3, 30), prompt) == Write(**one, Drawn(3, 30), prompt));
  CHECK_EQ((*two)->info().drafts_accepted, (*one)->info().drafts_accepted);
  CHECK_EQ((*two)->info().steps, (*one)->info().steps);
}
