// SPDX-License-Identifier: MIT
//
// Whole models against Hugging Face transformers (fp32, eager), on every CPU target, for several
// rank counts, with weights packed and in place. KV is fp32 here: the goldens' is.
#include <cmath>

#include "golden/fixtures.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using test::Golden;
using test::RowOf;
using test::Runner;
using test::WorstRelative;

namespace {

constexpr double kLogitsBound = 2e-4;  // of the largest |logit|
constexpr double kLayerBound = 1e-4;

void CheckLayers(test::Context& test_context, const model::Model& model, Runner* runner,
                 absl::Span<const uint32_t> prompt, const Golden& golden,
                 const std::string& prefix, const std::vector<int32_t>& positions) {
  const backend::Program& program = model.weights().program();
  for (size_t layer = 0; layer < program.layer_ends.size(); ++layer) {
    runner->Truncate(0);
    CHECK_OK(runner->ExtendPrefix(prompt, static_cast<size_t>(program.layer_ends[layer]) + 1));
    const std::vector<float> x =
        runner->context().ReadBuffer(0, program.x, static_cast<uint32_t>(prompt.size()));
    const std::vector<float> want = golden.Floats(prefix + "layers." + std::to_string(layer));
    CHECK(!want.empty());
    for (size_t i = 0; i < positions.size(); ++i) {
      CHECK_LE(WorstRelative(RowOf(x, prompt.size(), static_cast<size_t>(positions[i])),
                             RowOf(want, positions.size(), i)),
               kLayerBound);
    }
  }
}

// The router's choice in MoE layers, best first in the golden and ascending by id in ours.
void CheckRouting(test::Context& test_context, const model::Model& model, Runner* runner,
                  absl::Span<const uint32_t> prompt, const Golden& golden) {
  const backend::Program& program = model.weights().program();
  const size_t k = static_cast<size_t>(program.experts_per_token);
  for (size_t op = 0; op < program.ops.size(); ++op) {
    const auto* router = std::get_if<backend::RouterOp>(&program.ops[op]);
    if (router == nullptr) continue;
    size_t layer = 0;
    while (program.layer_ends[layer] < static_cast<int32_t>(op)) ++layer;
    const std::string name = "moe." + std::to_string(layer) + ".";
    const std::vector<int32_t> ids = golden.Ints(name + "topk_ids");
    const std::vector<float> weights = golden.Floats(name + "topk_weights");
    CHECK_EQ(ids.size(), prompt.size() * k);
    runner->Truncate(0);
    CHECK_OK(runner->ExtendPrefix(prompt, op + 1));
    const uint32_t rows = static_cast<uint32_t>(prompt.size());
    const std::vector<float> own_ids = runner->context().ReadBuffer(0, router->ids, rows);
    const std::vector<float> own = runner->context().ReadBuffer(0, router->weights, rows);
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t row = i / k * k;
      size_t at = row;
      while (at < row + k && static_cast<int32_t>(own_ids[at]) != ids[i]) ++at;
      CHECK_LT(at, row + k);
      CHECK_LE(std::fabs(own[at] - weights[i]), 1e-4);
    }
  }
}

void CheckGreedy(test::Context& test_context, Runner* runner, absl::Span<const uint32_t> prompt,
                 const Golden& golden, const std::string& prefix, double max_logit) {
  const std::vector<uint32_t> ids = golden.Tokens(prefix + "ids");
  const std::vector<uint32_t> top_ids = golden.Tokens(prefix + "top5_ids");
  const std::vector<float> top = golden.Floats(prefix + "top5_logits");
  CHECK(!ids.empty() && top_ids.size() == ids.size() * 5);
  runner->Truncate(0);
  CHECK_OK(runner->Extend(prompt, false));
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> logits = runner->Logits(0);
    // Where the golden's own margin is within the bound, either choice is right.
    if (top[5 * i] - top[5 * i + 1] > 2 * kLogitsBound * max_logit) {
      CHECK_EQ(test::ArgMax(logits), ids[i]);
    }
    for (size_t j = 5 * i; j < 5 * i + 5; ++j) {
      CHECK_LE(std::fabs(logits[top_ids[j]] - top[j]), kLogitsBound * max_logit);
    }
    CHECK_OK(runner->Extend({ids[i]}, false));
  }
}

void CheckFixture(test::Context& test_context, const test::FixtureCase& fixture,
                  const test::Setting& setting) {
  auto golden = Golden::Open(fixture.Name());
  CHECK_OK(golden);
  const std::string directory = test::WriteFixture(fixture);
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, setting);
  CHECK_OK(model);
  auto runner = Runner::Create(*model, backend::KvType::kF32, 150);
  CHECK_OK(runner);
  const std::vector<uint32_t> prompt = golden->Tokens("prompt");
  CheckLayers(test_context, **model, runner->get(), prompt, *golden, "",
              golden->Ints("layers.positions"));
  CheckRouting(test_context, **model, runner->get(), prompt, *golden);
  const std::vector<int32_t> positions = golden->Ints("prefill.positions");
  const std::vector<float> want = golden->Floats("prefill.logits");
  double max_logit = 0;
  for (float logit : want) max_logit = std::max(max_logit, std::fabs(double{logit}));
  for (const std::vector<size_t>& split :
       std::vector<std::vector<size_t>>{{150}, {64, 64, 22}, {97, 53}, {1, 149}, {148, 2}}) {
    (*runner)->Truncate(0);
    size_t at = 0;
    for (size_t n : split) {
      CHECK_OK((*runner)->Extend(absl::MakeConstSpan(prompt).subspan(at, n), true));
      for (size_t i = 0; i < positions.size(); ++i) {
        const size_t position = static_cast<size_t>(positions[i]);
        if (position < at || position >= at + n) continue;
        CHECK_LE(WorstRelative((*runner)->Logits(static_cast<uint32_t>(position - at)),
                               RowOf(want, positions.size(), i)),
                 kLogitsBound);
      }
      at += n;
    }
  }
  for (size_t n : {1, 3, 4, 63, 64, 65, 150}) {
    CheckGreedy(test_context, runner->get(), absl::MakeConstSpan(prompt).subspan(0, n), *golden,
                "greedy." + std::to_string(n) + ".", max_logit);
  }
}

}  // namespace

TEST(fixtures_match_transformers) {
  const std::vector<test::FixtureCase> cases = test::AllFixtureCases();
  CHECK_EQ(cases.size(), 12u);
  for (const test::FixtureCase& fixture : cases) {
    for (const test::Setting& setting : test::AllSettings()) {
      CheckFixture(test_context, fixture, setting);
      if (test_context.failed()) {
        test_context.Fail(__FILE__, __LINE__, fixture.Name() + " on " + setting.Name());
        return;
      }
    }
  }
}

TEST(trained_checkpoint_matches_transformers) {
  auto golden = Golden::Open("trained");
  CHECK_OK(golden);
  for (const test::Setting& setting : test::AllSettings()) {
    auto model = test::LoadOn(test::SourcePath("tests/golden/trained"), setting);
    CHECK_OK(model);
    auto runner = Runner::Create(*model, backend::KvType::kF32, 256);
    CHECK_OK(runner);
    for (int p = 0; p < 4; ++p) {
      const std::string prefix = "p" + std::to_string(p) + ".";
      const std::vector<uint32_t> prompt = golden->Tokens(prefix + "prompt");
      const std::vector<int32_t> positions = golden->Ints(prefix + "positions");
      const std::vector<float> logits = golden->Floats(prefix + "logits");
      CheckLayers(test_context, **model, runner->get(), prompt, *golden, prefix, positions);
      (*runner)->Truncate(0);
      CHECK_OK((*runner)->Extend(prompt, true));
      double max_logit = 0;
      for (size_t i = 0; i < positions.size(); ++i) {
        const absl::Span<const float> want = RowOf(logits, positions.size(), i);
        CHECK_LE(WorstRelative((*runner)->Logits(static_cast<uint32_t>(positions[i])), want),
                 kLogitsBound);
        for (float logit : want) max_logit = std::max(max_logit, std::fabs(double{logit}));
      }
      CheckGreedy(test_context, runner->get(), prompt, *golden, prefix + "greedy.", max_logit);
    }
  }
}

TEST(perplexity_of_held_out_text_matches_transformers) {
  auto golden = Golden::Open("trained");
  CHECK_OK(golden);
  const std::vector<uint32_t> ids = golden->Tokens("heldout.ids");
  // tests/golden/data/manifest.json, trained.heldout: windows of 512, fp32.
  constexpr size_t kWindow = 512, kPredicted = 9186;
  constexpr double kNll = 31673.67673;
  auto model = test::LoadOn(test::SourcePath("tests/golden/trained"), {});
  CHECK_OK(model);
  struct Bound {
    backend::KvType kv;
    double relative;
    backend::Activations activations = backend::Activations::kF32;
  };
  for (const Bound& bound : {Bound{backend::KvType::kF32, 1e-6}, Bound{backend::KvType::kBF16, 1e-4},
                             Bound{backend::KvType::kFp8, 2e-3},
                             Bound{backend::KvType::kF32, 1e-3, backend::Activations::kBF16}}) {
    auto runner = Runner::Create(*model, bound.kv, kWindow, bound.activations);
    CHECK_OK(runner);
    double nll = 0;
    size_t predicted = 0;
    for (size_t at = 0; at < ids.size(); at += kWindow) {
      const auto window = absl::MakeConstSpan(ids).subspan(at, kWindow);
      (*runner)->Truncate(0);
      CHECK_OK((*runner)->Extend(window, true));
      for (size_t i = 0; i + 1 < window.size(); ++i, ++predicted) {
        const absl::Span<const float> logits =
            (*runner)->context().Logits(static_cast<uint32_t>(i));
        double max = -INFINITY, sum = 0;
        for (float logit : logits) max = std::max(max, double{logit});
        for (float logit : logits) sum += std::exp(double{logit} - max);
        nll -= logits[window[i + 1]] - max - std::log(sum);
      }
    }
    CHECK_EQ(predicted, kPredicted);
    CHECK_LE(std::fabs(nll - kNll) / kNll, bound.relative);
  }
}
