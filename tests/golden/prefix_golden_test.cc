// SPDX-License-Identifier: MIT
//
// Property: what the prefix cache finds is what would have been run, to the bit: at any length, after
// an eviction, from a fork, whatever else runs, on CPUs, ranks and GPUs.
#include <random>

#include "decode/engine.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "support/gpus.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;
using test::Prompt;

namespace {

EngineOptions Options(backend::KvType kv, bool prefixes) {
  EngineOptions o;
  o.max_sequences = 3;
  o.max_sequence_tokens = 112;
  o.max_step_tokens = 40;
  o.kv_tokens = 176;  // some of what is kept has to go
  o.kv_type = kv;
  o.prefix_cache = prefixes;
  return o;
}

SequenceOptions Manual() {
  SequenceOptions o;
  o.manual = true;
  return o;
}

StatusOr<std::vector<float>> LogitsAfter(Engine& engine, SequenceId id) {
  while (true) {
    ASSIGN_OR_RETURN(const bool worked, engine.RunStep());
    if (!worked) break;
  }
  ASSIGN_OR_RETURN(const absl::Span<const float> logits, engine.Logits(id));
  return std::vector<float>(logits.begin(), logits.end());
}

// Of a new sequence of these tokens, which is closed again.
StatusOr<std::vector<float>> LogitsOf(Engine& engine, absl::Span<const uint32_t> tokens) {
  ASSIGN_OR_RETURN(const SequenceId id, engine.Open(Manual()));
  RETURN_IF_ERROR(engine.Append(id, tokens));
  ASSIGN_OR_RETURN(std::vector<float> logits, LogitsAfter(engine, id));
  RETURN_IF_ERROR(engine.Close(id));
  return logits;
}

// The first `common` tokens of one text, then others by `seed`.
std::vector<uint32_t> TokensOf(size_t common, size_t more, uint32_t seed) {
  std::vector<uint32_t> tokens = Prompt(common, 512);
  std::mt19937 random(seed);
  for (size_t i = 0; i < more; ++i) tokens.push_back(static_cast<uint32_t>(random() % 500));
  return tokens;
}

void HitsAreMisses(test::Context& test_context, const test::FixtureCase& fixture,
                   const std::string& device, backend::KvType kv, size_t scenarios) {
  const std::string directory = test::WriteFixture(fixture);
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {device, "", 2, false});
  CHECK_OK(model);
  auto kept = Engine::Create(*model, Options(kv, true));
  auto fresh = Engine::Create(*model, Options(kv, false));
  CHECK_OK(kept);
  CHECK_OK(fresh);
  Engine& engine = **kept;
  std::mt19937 random(7);
  for (size_t i = 0; i < scenarios; ++i) {
    const std::vector<uint32_t> tokens =
        TokensOf(1 + random() % 70, random() % 30, 1 + random() % 3);
    auto want = LogitsOf(**fresh, tokens);
    CHECK_OK(want);
    // Beside it one that was forked from the midst of it.
    auto id = engine.Open(Manual());
    CHECK_OK(id);
    const size_t half = tokens.size() / 2;
    CHECK_OK(engine.Append(*id, absl::MakeConstSpan(tokens).first(half)));
    while (half > 0) {
      auto worked = engine.RunStep();
      CHECK_OK(worked);
      if (!*worked) break;
    }
    auto fork = engine.Fork(*id);
    CHECK_OK(fork);
    CHECK_OK(engine.Append(*fork, TokensOf(0, 5, 9)));
    CHECK_OK(engine.Append(*id, absl::MakeConstSpan(tokens).subspan(half)));
    auto logits = LogitsAfter(engine, *id);
    CHECK_OK(logits);
    CHECK(test::Same(*logits, *want));
    CHECK_OK(engine.Close(*fork));
    CHECK_OK(engine.Close(*id));
    auto again = LogitsOf(engine, tokens);
    CHECK_OK(again);
    CHECK(test::Same(*again, *want));
  }
  const EngineInfo info = engine.info();
  CHECK_GT(info.prefix_hits, scenarios / 2);
  CHECK_GT(info.prefix_evictions, 0u);
  CHECK_EQ((*fresh)->info().prefix_hits, 0u);
}

}  // namespace

TEST(a_hit_is_a_miss_on_cpus) {
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    if (fixture.variant != "bf16" && fixture.variant != "mxfp4") continue;
    HitsAreMisses(test_context, fixture, "cpu", backend::KvType::kBF16, 60);
    HitsAreMisses(test_context, fixture, "cpu:2", backend::KvType::kFp8, 20);
    HitsAreMisses(test_context, fixture, "cpu", backend::KvType::kFp4, 20);
  }
}

TEST(a_hit_is_a_miss_on_gpus) {
  NEEDS_GPUS();
  HitsAreMisses(test_context, {"T1", "bf16", 1}, "sim:gfx942", backend::KvType::kBF16, 6);
  HitsAreMisses(test_context, {"T2", "bf16", 1}, "sim:gfx950x2", backend::KvType::kFp8, 4);
}
