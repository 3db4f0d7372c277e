// SPDX-License-Identifier: MIT
//
// Every fixture with every type of KV cache, on CPUs and virtual nodes, step by step against the
// fp64 decoder, which reads K and V back, compares each element with its own and follows them: what
// is left of the error is the arithmetic's.
#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "file/checkpoint.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/gpus.h"
#include "support/test.h"

using namespace mainarch;
using test::Runner;

namespace {

constexpr quant::KvType kTypes[] = {quant::KvType::kBF16, quant::KvType::kFp8, quant::KvType::kF32,
                                    quant::KvType::kFp4, quant::KvType::kK8V4};

// The bounds of cli/model_decode.cc: fp32 on CPUs; on GPUs attention multiplies pairs of bf16.
double BoundOf(const std::string& device) { return absl::StartsWith(device, "sim:") ? 1e-4 : 2e-5; }

// A prompt of 20 in one step, which ends in the second page, then 4 tokens one by one.
void CheckCache(test::Context& test_context, const std::string& name, const std::string& directory,
                const std::string& device, quant::KvType kv) {
  CHECK(!directory.empty());
  auto checkpoint = file::Checkpoint::Open(directory);
  CHECK_OK(checkpoint);
  auto model = test::LoadOn(directory, {device, "", 0, false});
  CHECK_OK(model);
  auto runner = Runner::Create(*model, kv, 20);
  CHECK_OK(runner);
  auto reference =
      reference::Decoder::Create(std::shared_ptr<const file::Checkpoint>(std::move(*checkpoint)),
                                 (*model)->config(), kv);
  CHECK_OK(reference);
  (*reference)
      ->Follow([&](size_t layer, size_t position, std::vector<float>* k,
                   std::vector<float>* v) -> Status {
        ASSIGN_OR_RETURN(backend::KvToken stored,
                         (*runner)->ReadKv(static_cast<int32_t>(layer), position));
        *k = std::move(stored.k);
        *v = std::move(stored.v);
        return OkStatus();
      });
  const std::vector<uint32_t> tokens = test::Prompt(24, 512);
  double worst = 0;
  for (size_t done = 0; done < tokens.size();) {
    const size_t count = done == 0 ? 20 : 1;
    const auto piece = absl::MakeConstSpan(tokens).subspan(done, count);
    CHECK_OK((*runner)->Extend(piece, false));
    CHECK_OK((*reference)->Extend(piece));
    const std::vector<float> logits = (*runner)->Logits(0);
    double largest = 0, difference = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double want = (*reference)->logits()[i];
      const double delta = std::fabs(double{logits[i]} - want);
      if (!(delta <= difference)) difference = delta;  // a NaN stays
      largest = std::max(largest, std::fabs(want));
    }
    CHECK_LE(difference / largest, BoundOf(device));
    worst = std::max(worst, difference / largest);
    done += count;
  }
  std::printf("# %s on %s, KV type %d: worst relative error of a step %.2e, bound %.0e\n",
              name.c_str(), device.c_str(), static_cast<int>(kv), worst,
              BoundOf(device));
}

}  // namespace

// Devices and types take turns; MAINARCH_GPU_MATRIX=1: each with each.
TEST(caches_hold_what_the_reference_has) {
  const std::vector<std::string> devices = {"cpu",   "sim:gfx950x4", "cpu:2", "sim:gfx942",
                                            "cpu:4", "sim:gfx950x2", "cpu:8", "sim:gfx942x8"};
  const bool matrix = std::getenv("MAINARCH_GPU_MATRIX") != nullptr;
  size_t turn = 0;
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    for (size_t i = 0; i < (matrix ? devices.size() : 4); ++i, ++turn) {
      const std::string& device = devices[turn % devices.size()];
      if (!test::IsHere(device)) continue;
      for (size_t type = 0; type < (matrix ? std::size(kTypes) : 1); ++type) {
        // (Ten turns would give each device two types and no more.)
        CheckCache(test_context, fixture.Name(), test::WriteFixture(fixture), device,
                   kTypes[(turn + turn / devices.size() + type) % std::size(kTypes)]);
        if (test_context.failed()) return;
      }
    }
  }
}

// Heads that GPUs store wider, 24 as 32 and 80 as 128: the reference widens as the backend does, so that what is turned
// and scaled as a whole is alike.
TEST(widened_heads_in_every_type_of_cache) {
  NEEDS_GPUS();
  size_t turn = 0;
  for (const int32_t head_dim : {24, 80}) {
    model::ModelConfig c;
    c.model_type = "qwen3";
    c.hidden = 64;
    c.layers = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = head_dim;
    c.intermediate = 96;
    c.vocab = 512;
    c.max_position = 256;
    c.rope.rotary_dim = head_dim;
    c.sparse_layer.assign(2, false);
    const std::string name = "heads of " + std::to_string(head_dim);
    const std::string directory = test::ScratchDirectory() + "/" + std::to_string(head_dim);
    CHECK_OK(model::WriteSyntheticCheckpoint(c, directory, {}));
    for (const quant::KvType kv : kTypes) {
      CheckCache(test_context, name, directory, turn++ % 2 == 0 ? "sim:gfx942" : "sim:gfx950x2", kv);
    }
  }
}
