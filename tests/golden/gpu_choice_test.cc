// SPDX-License-Identifier: MIT
//
// Property: a token chosen on the GPUs is the one that the CPU's sampler draws from the same
// logits, whatever is asked for and on however many ranks; and an engine gives the same tokens.
#include <cstdlib>
#include <random>

#include "decode/engine.h"
#include "decode/export.h"
#include "decode/sampler.h"
#include "decode/token_mask.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using decode::SequenceOptions;

namespace {

constexpr uint32_t kVocab = 512;
constexpr uint32_t kRows = 24;

SequenceOptions RandomOptions(std::mt19937& random) {
  const auto uniform = [&] { return std::uniform_real_distribution<float>(0, 1)(random); };
  SequenceOptions o;
  o.seed = random();
  if (random() % 4 == 0) return o;
  // Logits of these models lie far apart.
  o.temperature = random() % 8 == 0 ? 1e-3f : 4 + 20 * uniform();
  if (random() % 2 == 0) o.top_k = 1 + random() % 60;
  if (random() % 2 == 0) o.top_p = 0.05f + 0.95f * uniform();
  if (random() % 3 == 0) o.min_p = 0.3f * uniform();
  if (random() % 3 == 0) {
    o.repetition_penalty = 0.8f + uniform();
    o.frequency_penalty = uniform() - 0.3f;
    o.presence_penalty = uniform();
  }
  for (uint32_t i = random() % 4; i > 0; --i) {
    o.logit_bias.push_back({static_cast<uint32_t>(random() % kVocab), 4 * uniform() - 2});
  }
  return o;
}

// Rows of one step, each with other options, `rounds` times.
void CheckRows(test::Context& test_context, const std::string& directory, const std::string& device,
               int rounds) {
  auto model = test::LoadOn(directory, {device, "", 0, false});
  CHECK_OK(model);
  backend::ContextOptions context_options;
  context_options.max_rows = context_options.max_logit_rows = kRows;
  context_options.pages = {(kRows + 15) / 16};
  auto context = (*model)->weights().CreateContext(context_options);
  CHECK_OK(context);
  std::mt19937 random(std::hash<std::string>()(device) % 1000);
  decode::Sampler sampler(kVocab);
  const std::vector<uint32_t> pages = {1, 0};
  const backend::StepCache cache = {pages};
  const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1)};
  uint32_t drawn = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<SequenceOptions> options(kRows);
    std::vector<decode::TokenCounts> counts(kRows);
    std::vector<decode::SampleRequest> requests(kRows);
    std::vector<std::vector<uint32_t>> masks(kRows);
    std::vector<backend::StepRow> rows;
    std::vector<uint32_t> logit_rows;
    std::vector<backend::Choice> choices;
    for (uint32_t i = 0; i < kRows; ++i) {
      options[i] = RandomOptions(random);
      counts[i].Enable(kVocab, 30);
      for (int n = 0; n < 30; ++n) counts[i].Add(random() % kVocab, random() % 2 == 0);
      requests[i].options = &options[i];
      requests[i].counts = &counts[i];
      requests[i].position = 100 + i;
      if (random() % 3 == 0) {
        for (uint32_t word = 0; word < decode::MaskWords(kVocab); ++word) {
          masks[i].push_back(random() & random());
        }
        masks[i][3] |= 1;  // something is left
        requests[i].mask = masks[i];
      }
      rows.push_back({static_cast<uint32_t>(random() % kVocab), i, 0});
      logit_rows.push_back(i);
      choices.push_back(decode::ChoiceOf(requests[i]));
    }
    backend::Step step;
    step.rows = rows;
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    step.logit_rows = logit_rows;
    step.choices = choices;
    CHECK_OK((*context)->Run(step));
    for (uint32_t i = 0; i < kRows; ++i) {
      const auto chosen = (*context)->Chosen(i);
      CHECK(chosen.has_value());
      CHECK_OK((*context)->FetchLogits(i));
      const auto want = sampler.Sample((*context)->Logits(i), requests[i]);
      CHECK_OK(want);
      CHECK(masks[i].empty() || decode::Allows(masks[i], *chosen));
      if (*chosen != *want) std::printf("# %s round %d row %u\n", device.c_str(), round, i);
      CHECK_EQ(*chosen, *want);
      drawn += test::ArgMax((*context)->Logits(i)) != *want;
    }
  }
  std::printf("# %s: %u rows, %u not the largest logit\n", device.c_str(), rounds * kRows, drawn);
  CHECK_GT(drawn, static_cast<uint32_t>(rounds) * kRows / 8);
}

// An engine's tokens, all sequences at once. `manual`: chosen by the sampler here, from its logits.
StatusOr<std::vector<std::vector<uint32_t>>> Generate(std::shared_ptr<const model::Model> model,
                                                      std::vector<SequenceOptions> options,
                                                      uint32_t tokens, bool manual,
                                                      uint64_t* ahead = nullptr) {
  decode::EngineOptions engine_options;
  engine_options.max_sequences = static_cast<uint32_t>(options.size());
  engine_options.max_sequence_tokens = 64;
  ASSIGN_OR_RETURN(auto engine, decode::Engine::Create(model, engine_options));
  decode::Sampler sampler(kVocab);
  std::vector<decode::SequenceId> ids;
  std::vector<decode::TokenCounts> counts(options.size());
  for (size_t i = 0; i < options.size(); ++i) {
    SequenceOptions o = options[i];
    o.manual = manual;
    o.max_tokens = tokens;
    o.ignore_eos = true;
    ASSIGN_OR_RETURN(const decode::SequenceId id, engine->Open(o));
    const std::vector<uint32_t> prompt = test::Prompt(3 + i, kVocab);
    RETURN_IF_ERROR(engine->Append(id, prompt));
    counts[i].Enable(kVocab, 100);
    for (const uint32_t token : prompt) counts[i].Add(token, false);
    ids.push_back(id);
  }
  std::vector<std::vector<uint32_t>> out(options.size());
  while (out.back().size() < tokens) {
    ASSIGN_OR_RETURN(const bool ran, engine->RunStep());
    if (!ran) return Error(Code::kInternal, "nothing left to run");
    for (size_t i = 0; i < ids.size(); ++i) {
      uint32_t token = 0;
      if (manual) {
        ASSIGN_OR_RETURN(const auto logits, engine->Logits(ids[i]));
        std::vector<float> copy(logits.begin(), logits.end());
        decode::SampleRequest request;
        request.options = &options[i];
        request.counts = &counts[i];
        request.position = 3 + i + out[i].size();
        ASSIGN_OR_RETURN(token, sampler.Sample(absl::MakeSpan(copy), request));
        RETURN_IF_ERROR(engine->Append(ids[i], {token}));
        counts[i].Add(token, true);
      } else {
        ASSIGN_OR_RETURN(const size_t taken, engine->Take(ids[i], absl::MakeSpan(&token, 1)));
        if (taken != 1) return Error(Code::kInternal, "no token");
      }
      out[i].push_back(token);
    }
  }
  if (ahead != nullptr) *ahead = engine->info().ahead;
  return out;
}

}  // namespace

TEST(rows_of_every_kind_on_every_number_of_ranks) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  const int rounds = std::getenv("MAINARCH_GPU_MATRIX") != nullptr ? 40 : 2;
  for (const char* device : {"sim:gfx950", "sim:gfx942x2", "sim:gfx950x4", "sim:gfx942x8"}) {
    CheckRows(test_context, directory, device, rounds);
  }
  // Every checker looking on, memory full of NaNs until something is written there.
  CheckRows(test_context, directory, "sim:gfx950x2,poison=1,check=all", 1);
}

TEST(an_engine_gives_the_same_tokens) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  std::mt19937 random(9);
  std::vector<SequenceOptions> options;
  for (int i = 0; i < 5; ++i) options.push_back(RandomOptions(random));
  options[1].logprobs = 3;
  auto model = test::LoadOn(directory, {"sim:gfx950x2", "", 0, false});
  CHECK_OK(model);
  const auto manual = Generate(*model, options, 5, true);
  CHECK_OK(manual);
  const auto own = Generate(*model, options, 5, false);
  CHECK_OK(own);
  for (size_t i = 0; i < options.size(); ++i) CHECK((*own)[i] == (*manual)[i]);
}

// Nothing keeps the step that follows from being submitted before a step has ended; its tokens are
// those of steps that each waited for the host.
TEST(an_engine_gives_the_same_tokens_with_two_steps_in_flight) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  std::vector<SequenceOptions> options(4);
  options[1].temperature = 1, options[1].seed = 3, options[1].logprobs = 2;
  options[2].temperature = 0.7f, options[2].top_p = 0.9f, options[2].top_k = 40;
  options[3].logit_bias = {{5, -INFINITY}};
  for (const char* device : {"sim:gfx950x2", "sim:gfx942"}) {
    auto model = test::LoadOn(directory, {device, "", 0, false});
    CHECK_OK(model);
    uint64_t ahead = 9;
    const auto manual = Generate(*model, options, 8, true, &ahead);
    CHECK_OK(manual);
    CHECK_EQ(ahead, 0u);
    const auto own = Generate(*model, options, 8, false, &ahead);
    CHECK_OK(own);
    CHECK_EQ(ahead, 7u);  // all but the prompts'
    for (size_t i = 0; i < options.size(); ++i) CHECK((*own)[i] == (*manual)[i]);
  }
}

// K and V read out of the GPUs' memory and written into that of another engine are the same.
TEST(a_sequence_travels_with_its_content) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx950x2", "", 0, false});
  CHECK_OK(model);
  decode::EngineOptions engine_options;
  engine_options.max_sequence_tokens = 64;
  auto here = decode::Engine::Create(*model, engine_options);
  CHECK_OK(here);
  auto there = decode::Engine::Create(*model, engine_options);
  CHECK_OK(there);
  SequenceOptions options;
  options.max_tokens = 6;
  options.ignore_eos = true;
  const auto id = (*here)->Open(options);
  CHECK_OK(id);
  CHECK_OK((*here)->Append(*id, test::Prompt(18, kVocab)));
  for (int i = 0; i < 3; ++i) CHECK_OK((*here)->RunStep());
  const auto saved = (*here)->Save(*id, true);
  CHECK_OK(saved);
  CHECK_EQ(saved->stored, 20u);
  const auto copy = (*there)->Restore(*saved);
  CHECK_OK(copy);
  CHECK_EQ((*there)->InfoOf(*copy)->position, 20u);
  std::vector<uint32_t> tokens[2];
  for (const int at : {0, 1}) {
    decode::Engine& engine = at == 0 ? **here : **there;
    for (int i = 0; i < 3; ++i) CHECK_OK(engine.RunStep());
    tokens[at].resize(6);
    const auto taken = engine.Take(at == 0 ? *id : *copy, absl::MakeSpan(tokens[at]));
    CHECK_OK(taken);
    CHECK_EQ(*taken, 6u);
  }
  CHECK(tokens[0] == tokens[1]);
  CHECK_EQ((*there)->info().rows, 3u);
}

// Logits are there for whoever asks, also where nobody had to read them; a greedy step takes fewer
// packets than one that draws.
TEST(logits_stay_within_reach) {
  const std::string directory = test::WriteFixture({"T1", "mxfp4", 1});
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx950x2", "", 0, false});
  CHECK_OK(model);
  uint32_t packets[2] = {0, 0};
  std::vector<float> logits[2];
  for (const bool draws : {false, true}) {
    auto engine = decode::Engine::Create(*model, {});
    CHECK_OK(engine);
    SequenceOptions options;
    options.max_tokens = 1;
    if (draws) options.temperature = 1;
    auto id = (*engine)->Open(options);
    CHECK_OK(id);
    CHECK_OK((*engine)->Append(*id, {5, 17, 230}));
    auto ran = (*engine)->RunStep();
    CHECK_OK(ran);
    packets[draws] = (*engine)->counts().packets;
    auto got = (*engine)->Logits(*id);
    CHECK_OK(got);
    logits[draws].assign(got->begin(), got->end());
  }
  CHECK_EQ(packets[1], packets[0] + 2);
  CHECK(test::Same(logits[0], logits[1]));
  auto runner = test::Runner::Create(*model, backend::KvType::kBF16, 3);
  CHECK_OK(runner);
  CHECK_OK((*runner)->Extend({5, 17, 230}, false));
  CHECK(test::Same((*runner)->Logits(0), logits[0]));
}
