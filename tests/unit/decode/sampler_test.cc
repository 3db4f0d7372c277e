// SPDX-License-Identifier: MIT
#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "decode/philox.h"
#include "support/reference_sampler.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(std::mt19937& random, size_t n, float spread, bool ties) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> l(n);
  for (float& x : l) x = ties ? std::round(normal(random)) : normal(random);
  return l;
}

SampleRequest Request(const SequenceOptions& options, uint64_t position = 0) {
  SampleRequest request;
  request.options = &options;
  request.position = position;
  return request;
}

std::vector<uint32_t> KeptIds(Sampler& sampler, std::vector<float> l, const SequenceOptions& o) {
  const auto kept = sampler.Kept(absl::MakeSpan(l), Request(o));
  if (!kept.ok()) return {UINT32_MAX};
  return {kept->begin(), kept->end()};
}

// The token, or UINT32_MAX for an error.
uint32_t Draw(Sampler& sampler, std::vector<float>& l, const SampleRequest& request) {
  const auto token = sampler.Sample(absl::MakeSpan(l), request);
  return token.ok() ? *token : UINT32_MAX;
}

}  // namespace

// Known answers published with the Random123 library.
TEST(philox_known_answers) {
  const PhiloxBlock zero = Philox({0, 0, 0, 0}, 0);
  CHECK((zero == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const PhiloxBlock ones = Philox({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0});
  CHECK((ones == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  const PhiloxBlock pi =
      Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ull);
  CHECK((pi == PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(kept_sets_equal_the_plain_definition) {
  std::mt19937 random(1);
  size_t cases = 0;
  for (const size_t vocab : {1u, 2u, 7u, 255u, 256u, 257u, 1000u, 5000u}) {
    Sampler sampler(static_cast<uint32_t>(vocab));
    for (int round = 0; round < 60; ++round) {
      SequenceOptions o;
      const std::vector<float> l =
          RandomLogits(random, vocab, round % 3 == 0 ? 0.1f : 4.0f, round % 4 == 0);
      o.temperature = std::vector<float>{0.3f, 0.7f, 1.0f, 2.0f}[random() % 4];
      if (random() % 2) o.top_k = 1 + random() % 60;
      if (random() % 8 == 0) o.top_k = 1 + static_cast<uint32_t>(random() % (2 * vocab));
      if (random() % 2)
        o.top_p = std::vector<float>{0.01f, 0.5f, 0.8f, 0.95f, 0.999f}[random() % 5];
      if (random() % 3 == 0) o.min_p = std::vector<float>{0.01f, 0.1f, 0.9f, 1.0f}[random() % 4];
      const test::ReferenceSampler reference{o, {}, {}, {}};
      std::vector<uint32_t> expected;
      for (auto [id, weight] : reference.Kept(l)) expected.push_back(id);
      CHECK(KeptIds(sampler, l, o) == expected);
      ++cases;
    }
  }
  CHECK_EQ(cases, 480u);
}

TEST(samples_equal_the_plain_race) {
  std::mt19937 random(2);
  Sampler sampler(777);
  for (int round = 0; round < 400; ++round) {
    SequenceOptions o;
    o.seed = random();
    o.temperature = 0.2f + static_cast<float>(random() % 10) / 5;
    if (round % 2) o.top_k = 20;
    if (round % 3) o.top_p = 0.9f;
    std::vector<float> l = RandomLogits(random, 777, 3, false);
    const test::ReferenceSampler reference{o, {}, {}, {}};
    const uint64_t position = random() + (uint64_t{random()} << 32);
    const auto token = sampler.Sample(absl::MakeSpan(l), Request(o, position));
    CHECK_OK(token);
    CHECK_EQ(*token, reference.Sample(l, position));
  }
}

TEST(penalties_bias_and_bans_in_order_and_logits_restored) {
  std::mt19937 random(3);
  Sampler sampler(64);
  for (int round = 0; round < 300; ++round) {
    SequenceOptions o;
    o.temperature = round % 2 ? 0.8f : 0;
    o.repetition_penalty = round % 3 ? 1.3f : 0;
    o.frequency_penalty = round % 5 ? 0.4f : 0;
    o.presence_penalty = round % 7 ? -0.6f : 0;
    o.logit_bias = {{3, 2.5f}, {9, -INFINITY}, {3, 1.0f}};
    test::ReferenceSampler reference{o, {}, {}, {1, 2, 60}};
    TokenCounts counts;
    counts.Enable(64, 1000);
    for (int i = 0; i < 30; ++i) {
      const uint32_t token = random() % 64;
      (i < 15 ? reference.prompt : reference.output).push_back(token);
      counts.Add(token, i >= 15);
    }
    std::vector<float> l = RandomLogits(random, 64, 3, false);
    const std::vector<float> before = l;
    SampleRequest request = Request(o, round);
    const std::vector<uint32_t> eos = {1, 2};
    const std::vector<uint32_t> stop = {60};
    request.ban_eos = eos;
    request.ban_stop = stop;
    request.counts = &counts;
    const auto token = sampler.Sample(absl::MakeSpan(l), request);
    CHECK_OK(token);
    CHECK_EQ(*token, reference.Sample(before, round));
    CHECK(l == before);
  }
}

TEST(repetition_counts_the_prompt_and_frequency_does_not) {
  Sampler sampler(4);
  TokenCounts counts;
  counts.Enable(4, 100);
  counts.Add(0, false);
  std::vector<float> l = {1.0f, 0.9f, -5, -5};
  SequenceOptions frequency;
  frequency.frequency_penalty = 100;
  SampleRequest request = Request(frequency);
  request.counts = &counts;
  CHECK_EQ(Draw(sampler, l, request), 0u);
  SequenceOptions repetition;
  repetition.repetition_penalty = 2;
  request.options = &repetition;
  CHECK_EQ(Draw(sampler, l, request), 1u);
  counts.Add(0, true);
  request.options = &frequency;
  CHECK_EQ(Draw(sampler, l, request), 1u);
}

TEST(greedy_takes_the_lowest_of_equals_anywhere) {
  for (const size_t vocab : {1u, 15u, 16u, 256u, 300u, 513u, 4099u}) {
    Sampler sampler(static_cast<uint32_t>(vocab));
    const SequenceOptions o;
    std::mt19937 random(4);
    for (int round = 0; round < 50; ++round) {
      std::vector<float> l(vocab, -1);
      const uint32_t a = static_cast<uint32_t>(random() % vocab);
      const uint32_t b = static_cast<uint32_t>(random() % vocab);
      l[a] = l[b] = 2;
      CHECK_EQ(Draw(sampler, l, Request(o)), std::min(a, b));
      l[a] = l[b] = -1;
      CHECK_EQ(Draw(sampler, l, Request(o)), 0u);
    }
  }
}

TEST(a_bad_logit_anywhere_is_an_error_that_names_it) {
  for (const size_t vocab : {1u, 256u, 700u}) {
    Sampler sampler(static_cast<uint32_t>(vocab));
    for (size_t i = 0; i < vocab; ++i) {
      for (const float bad : {NAN, -NAN, kInf}) {
        for (const float temperature : {0.0f, 1.0f}) {
          std::vector<float> l(vocab, 0.5f);
          l[i] = bad;
          SequenceOptions o;
          o.temperature = temperature;
          const auto token = sampler.Sample(absl::MakeSpan(l), Request(o));
          CHECK(CodeOf(token.status()) == Code::kBadModel);
          CHECK(token.status().message().find(absl::StrCat("token ", i, " is")) !=
                absl::string_view::npos);
          std::vector<Logprob> out(2);
          CHECK(!sampler.Logprobs(l, 0, absl::MakeSpan(out)).ok());
        }
      }
    }
  }
}

TEST(everything_banned_is_an_error) {
  Sampler sampler(3);
  std::vector<float> l = {1, 2, 3};
  SequenceOptions o;
  o.logit_bias = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}};
  for (const float temperature : {0.0f, 1.0f}) {
    o.temperature = temperature;
    CHECK(CodeOf(sampler.Sample(absl::MakeSpan(l), Request(o)).status()) == Code::kInvalidArgument);
    CHECK_EQ(l[2], 3.0f);
  }
  o.logit_bias.pop_back();
  CHECK_EQ(Draw(sampler, l, Request(o)), 2u);
}

TEST(extreme_but_finite_logits_are_sampled) {
  Sampler sampler(300);
  std::vector<float> l(300, -3e38f);
  l[123] = 3e38f;
  SequenceOptions o;
  o.temperature = 2e-5f;
  o.top_p = 0.9f;
  CHECK_EQ(Draw(sampler, l, Request(o)), 123u);
  o.top_k = 5;
  o.min_p = 0.5f;
  CHECK_EQ(Draw(sampler, l, Request(o)), 123u);
}

// A sample depends on (seed, position) only, and consecutive positions and seeds are independent:
// frequencies over positions, and over seeds, fit the probabilities.
TEST(frequencies_pass_chi_square) {
  constexpr uint32_t kVocab = 40;
  constexpr int kDraws = 40'000;
  std::mt19937 random(6);
  Sampler sampler(kVocab);
  for (int grid = 0; grid < 4; ++grid) {
    const std::vector<float> raw = RandomLogits(random, kVocab, 1, false);
    SequenceOptions o;
    o.temperature = grid == 1 ? 0.6f : 1.0f;
    if (grid == 2) o.top_k = 10;
    if (grid == 3) o.top_p = 0.8f;
    const test::ReferenceSampler reference{o, {}, {}, {}};
    const auto kept = reference.Kept(raw);
    double total = 0;
    for (auto [id, weight] : kept) total += weight;
    for (const bool by_seed : {false, true}) {
      std::vector<int> hits(kVocab, 0);
      std::vector<float> l = raw;
      for (int i = 0; i < kDraws; ++i) {
        o.seed = by_seed ? static_cast<uint64_t>(i) : 99;
        const auto token =
            sampler.Sample(absl::MakeSpan(l), Request(o, by_seed ? 7 : static_cast<uint64_t>(i)));
        CHECK_OK(token);
        ++hits[*token];
      }
      double chi2 = 0;
      int inside = 0;
      for (auto [id, weight] : kept) {
        const double expected = kDraws * weight / total;
        chi2 += (hits[id] - expected) * (hits[id] - expected) / expected;
        inside += hits[id];
      }
      CHECK_EQ(inside, kDraws);
      // Mean n, variance 2n: four deviations up is a p-value well below 1e-3.
      const double n = static_cast<double>(kept.size()) - 1;
      CHECK_LT(chi2, n + 4 * std::sqrt(2 * n));
      CHECK_GT(chi2, n - 4 * std::sqrt(2 * n));
    }
  }
}

TEST(logprobs_are_of_raw_logits_best_first_lowest_id_on_ties) {
  std::mt19937 random(8);
  for (const size_t vocab : {1u, 3u, 300u, 4000u}) {
    Sampler sampler(static_cast<uint32_t>(vocab));
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> l = RandomLogits(random, vocab, 3, round % 2 == 0);
      double total = 0;
      for (float x : l) total += std::exp(double(x));
      std::vector<uint32_t> order(vocab);
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(),
                       [&](uint32_t a, uint32_t b) { return l[a] > l[b]; });
      const uint32_t token = static_cast<uint32_t>(random() % vocab);
      std::vector<Logprob> out(1 + random() % 33);
      CHECK_OK(sampler.Logprobs(l, token, absl::MakeSpan(out)));
      for (size_t i = 0; i < out.size(); ++i) {
        const uint32_t id = i == 0 || i > vocab ? token : order[i - 1];
        CHECK_EQ(out[i].token, id);
        CHECK_LT(std::fabs(out[i].logprob - (l[id] - std::log(total))), 2e-5);
      }
    }
  }
}

TEST(options_out_of_range_are_refused_by_name) {
  const auto refused = [](auto change, absl::string_view what) {
    SequenceOptions o;
    change(o);
    const Status status = CheckOptions(o, 100);
    return CodeOf(status) == Code::kInvalidArgument &&
           status.message().find(what) != absl::string_view::npos;
  };
  CHECK_OK(CheckOptions(SequenceOptions(), 100));
  CHECK(refused([](auto& o) { o.temperature = -1; }, "temperature -1"));
  CHECK(refused([](auto& o) { o.temperature = NAN; }, "temperature"));
  CHECK(refused([](auto& o) { o.top_p = NAN; }, "top_p"));
  CHECK(refused([](auto& o) { o.min_p = 1.5f; }, "min_p 1.5"));
  CHECK(refused([](auto& o) { o.repetition_penalty = -2; }, "repetition_penalty -2"));
  CHECK(refused([](auto& o) { o.frequency_penalty = kInf; }, "frequency_penalty"));
  CHECK(refused([](auto& o) { o.presence_penalty = NAN; }, "presence_penalty"));
  CHECK(refused([](auto& o) { o.logprobs = 33; }, "logprobs 33 is more than 32"));
  CHECK(refused([](auto& o) { o.stop_tokens = {100}; }, "token 100 is outside"));
  CHECK(refused([](auto& o) { o.stop_sequences = {{1}, {}}; }, "empty"));
  CHECK(refused([](auto& o) { o.stop_sequences = {{1, 100}}; }, "token 100"));
  CHECK(refused([](auto& o) { o.logit_bias = {{100, 0}}; }, "token 100"));
  CHECK(refused([](auto& o) { o.logit_bias = {{1, kInf}}; }, "logit_bias"));
  CHECK(refused([](auto& o) { o.min_tokens = 5, o.max_tokens = 4; }, "min_tokens 5"));
}
