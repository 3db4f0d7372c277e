// SPDX-License-Identifier: MIT
//
// Whole models on the GPU path, on virtual nodes: the shipped machine code through the driver's own
// queues, against Hugging Face transformers and against the CPU backend. KV is kept to 16 bits of
// mantissa here (KvType::kF32); the goldens' is fp32.
#include <cmath>
#include <cstdlib>

#include "golden/fixtures.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using test::Golden;
using test::Runner;

namespace {

// Activations, and keys and values, are multiplied as two bf16: 2^-17 of each element is lost.
constexpr double kLogitsBound = 2e-4;  // of the largest |logit|
constexpr double kLayerBound = 2e-4;

double WorstRelative(absl::Span<const float> a, absl::Span<const float> b) {
  if (a.size() != b.size() || b.empty()) return INFINITY;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double delta = std::fabs(double{a[i]} - double{b[i]});
    if (!(delta <= worst)) worst = delta;  // a NaN stays
    largest = std::max(largest, std::fabs(double{b[i]}));
  }
  return worst / largest;
}

absl::Span<const float> RowOf(const std::vector<float>& all, size_t rows, size_t i) {
  return absl::MakeConstSpan(all).subspan(i * (all.size() / rows), all.size() / rows);
}

// Prefill of `count` tokens in the given pieces, then greedy tokens, on `device`.
void CheckFixture(test::Context& test_context, const test::FixtureCase& fixture,
                  const std::string& device) {
  auto golden = Golden::Open(fixture.Name());
  CHECK_OK(golden);
  const std::string directory = test::WriteFixture(fixture);
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {device, "", 0, false});
  CHECK_OK(model);
  auto runner = Runner::Create(*model, backend::KvType::kF32, 150);
  CHECK_OK(runner);
  const backend::Program& program = (*model)->weights().program();
  const std::vector<uint32_t> prompt = golden->Tokens("prompt");
  const std::vector<int32_t> layer_positions = golden->Ints("layers.positions");
  for (size_t layer = 0; layer < program.layer_ends.size(); ++layer) {
    (*runner)->Truncate(0);
    CHECK_OK((*runner)->ExtendPrefix(prompt, static_cast<size_t>(program.layer_ends[layer]) + 1));
    const std::vector<float> x =
        (*runner)->context().ReadBuffer(0, program.x, static_cast<uint32_t>(prompt.size()));
    const std::vector<float> want = golden->Floats("layers." + std::to_string(layer));
    CHECK(!want.empty());
    for (size_t i = 0; i < layer_positions.size(); ++i) {
      const double worst =
          WorstRelative(RowOf(x, prompt.size(), static_cast<size_t>(layer_positions[i])),
                        RowOf(want, layer_positions.size(), i));
      if (std::getenv("V")) std::printf("# layer %zu pos %d: %g\n", layer, layer_positions[i], worst);
      CHECK_LE(worst, kLayerBound);
    }
  }
  const std::vector<int32_t> positions = golden->Ints("prefill.positions");
  const std::vector<float> want = golden->Floats("prefill.logits");
  double max_logit = 0;
  for (float logit : want) max_logit = std::max(max_logit, std::fabs(double{logit}));
  (*runner)->Truncate(0);
  CHECK_OK((*runner)->Extend(prompt, true));
  for (size_t i = 0; i < positions.size(); ++i) {
    const double worst = WorstRelative((*runner)->Logits(static_cast<uint32_t>(positions[i])),
                                       RowOf(want, positions.size(), i));
    if (std::getenv("V")) std::printf("# logits %d: %g\n", positions[i], worst);
    CHECK_LE(worst, kLogitsBound);
  }
  for (size_t n : {3, 65}) {
    const std::string prefix = "greedy." + std::to_string(n) + ".";
    const std::vector<uint32_t> ids = golden->Tokens(prefix + "ids");
    const std::vector<float> top = golden->Floats(prefix + "top5_logits");
    CHECK(!ids.empty() && top.size() == ids.size() * 5);
    (*runner)->Truncate(0);
    CHECK_OK((*runner)->Extend(absl::MakeConstSpan(prompt).subspan(0, n), false));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (top[5 * i] - top[5 * i + 1] > 2 * kLogitsBound * max_logit) {
        CHECK_EQ(test::ArgMax((*runner)->Logits(0)), ids[i]);
      }
      CHECK_OK((*runner)->Extend({ids[i]}, false));
    }
  }
}

}  // namespace

TEST(fixtures_on_one_gpu_match_transformers) {
  const char* only = std::getenv("MAINARCH_GPU_CASE");
  const char* device = std::getenv("MAINARCH_GPU_DEVICE");
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    if (only != nullptr && fixture.Name() != only) continue;
    std::printf("# %s\n", fixture.Name().c_str());
    CheckFixture(test_context, fixture, device != nullptr ? device : "sim:gfx950");
  }
}
