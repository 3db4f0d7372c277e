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
using test::RowOf;
using test::Runner;
using test::WorstRelative;

namespace {

// Activations, and keys and values, are multiplied as two bf16: 2^-17 of each element is lost.
constexpr double kBound = 1e-4;  // of the largest magnitude of a row; 3e-6 is what is seen

// A prefill of the whole prompt against the golden's last layer and logits, then 24 greedy tokens
// after a short prompt, chosen by the GPUs, on `device`.
void CheckFixture(test::Context& test_context, const test::FixtureCase& fixture,
                  const std::string& device) {
  std::printf("# %s on %s\n", fixture.Name().c_str(), device.c_str());
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
  CHECK_OK((*runner)->Extend(prompt, true));

  const std::vector<float> x =
      (*runner)->context().ReadBuffer(0, program.x, static_cast<uint32_t>(prompt.size()));
  const std::vector<int32_t> layer_positions = golden->Ints("layers.positions");
  const std::vector<float> layer =
      golden->Floats("layers." + std::to_string(program.layer_ends.size() - 1));
  CHECK(!layer.empty());
  for (size_t i = 0; i < layer_positions.size(); ++i) {
    CHECK_LE(WorstRelative(RowOf(x, prompt.size(), static_cast<size_t>(layer_positions[i])),
                           RowOf(layer, layer_positions.size(), i)),
             kBound);
  }
  const std::vector<int32_t> positions = golden->Ints("prefill.positions");
  const std::vector<float> want = golden->Floats("prefill.logits");
  CHECK(!positions.empty());
  double max_logit = 0;
  for (float logit : want) max_logit = std::max(max_logit, std::fabs(double{logit}));
  for (size_t i = 0; i < positions.size(); ++i) {
    CHECK_LE(WorstRelative((*runner)->Logits(static_cast<uint32_t>(positions[i])),
                           RowOf(want, positions.size(), i)),
             kBound);
  }
  const std::vector<uint32_t> ids = golden->Tokens("greedy.3.ids");
  const std::vector<float> top = golden->Floats("greedy.3.top5_logits");
  CHECK(!ids.empty() && top.size() == ids.size() * 5);
  (*runner)->Truncate(0);
  CHECK_OK((*runner)->Extend(absl::MakeConstSpan(prompt).subspan(0, 2), false));
  // The GPUs choose: the largest of their own logits always, the golden's wherever that is clear.
  uint32_t token = prompt[2];
  for (size_t i = 0; i < ids.size(); ++i) {
    auto chosen = (*runner)->Choose(token);
    CHECK_OK(chosen);
    CHECK(chosen->has_value());
    CHECK_EQ(**chosen, test::ArgMax((*runner)->Logits(0)));
    if (top[5 * i] - top[5 * i + 1] > 2 * kBound * max_logit) CHECK_EQ(**chosen, ids[i]);
    token = ids[i];
  }
}

}  // namespace

// Every fixture once, chips and numbers of GPUs taking turns. MAINARCH_GPU_MATRIX=1 runs every
// fixture on every chip and number; MAINARCH_TEST_DEVICE picks one.
TEST(fixtures_match_transformers) {
  const std::vector<std::string> devices = {"sim:gfx950",   "sim:gfx942x2", "sim:gfx950x4",
                                            "sim:gfx942",   "sim:gfx950x2", "sim:gfx942x4",
                                            "sim:gfx950x8", "sim:gfx942x8"};
  const char* device = std::getenv("MAINARCH_TEST_DEVICE");
  const bool matrix = std::getenv("MAINARCH_GPU_MATRIX") != nullptr;
  size_t turn = 0;
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    if (device != nullptr) {
      CheckFixture(test_context, fixture, device);
    } else if (matrix) {
      for (const std::string& each : devices) CheckFixture(test_context, fixture, each);
    } else {
      CheckFixture(test_context, fixture, devices[turn++ % devices.size()]);
    }
  }
}
