// SPDX-License-Identifier: MIT
//
// Whole models against Hugging Face transformers (fp32, eager), on every CPU target, for several
// rank counts, with weights packed and in place.
#include <cmath>
#include <cstdlib>

#include "backend/cpu/dispatch.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using test::Golden;
using test::Runner;

namespace {

struct Setting {
  std::string device = "cpu";
  std::string target;
  uint32_t threads = 2;
  bool in_place = false;
};

StatusOr<std::shared_ptr<const model::Model>> Load(const std::string& directory,
                                                   const Setting& setting) {
  backend::BackendOptions options;
  options.device = setting.device;
  options.cpu_target = setting.target;
  options.threads = setting.threads;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(options));
  backend::LoadOptions load;
  load.in_place = setting.in_place;
  return model::Model::Load(std::move(backend), directory, load);
}

// The largest |a - b| over the largest |b|.
double WorstRelative(absl::Span<const float> a, absl::Span<const float> b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::fabs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::fabs(double{b[i]}));
  }
  return worst / largest;
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    settings.push_back({"cpu", kernels->name, 1, false});
  }
  settings.push_back({"cpu:2", "", 2, false});
  settings.push_back({"cpu:4", "", 2, false});
  settings.push_back({"cpu", "", 2, true});
  return settings;
}

}  // namespace

TEST(trained_checkpoint_matches_transformers) {
  auto golden = Golden::Open("trained");
  CHECK_OK(golden);
  for (const Setting& setting : Settings()) {
    auto model = Load(test::SourcePath("tests/golden/trained"), setting);
    CHECK_OK(model);
    const std::vector<int32_t> layer_ends = (*model)->weights().program().layer_ends;
    for (int p = 0; p < 4; ++p) {
      const std::string prefix = "p" + std::to_string(p) + ".";
      const std::vector<uint32_t> prompt = golden->Tokens(prefix + "prompt");
      const std::vector<int32_t> positions = golden->Ints(prefix + "positions");
      const std::vector<float> logits = golden->Floats(prefix + "logits");
      auto runner = Runner::Create(*model, backend::KvType::kF32, 256);
      CHECK_OK(runner);
      for (size_t layer = 0; layer < layer_ends.size(); ++layer) {
        (*runner)->Truncate(0);
        CHECK_OK((*runner)->ExtendPrefix(prompt, static_cast<size_t>(layer_ends[layer]) + 1));
        const std::vector<float> x = (*runner)->context().ReadBuffer(
            0, (*model)->weights().program().x, static_cast<uint32_t>(prompt.size()));
        const std::vector<float> want =
            golden->Floats(prefix + "layers." + std::to_string(layer));
        for (size_t i = 0; i < positions.size(); ++i) {
          CHECK_LE(WorstRelative(absl::MakeConstSpan(x).subspan(
                                     static_cast<size_t>(positions[i]) * 128, 128),
                                 absl::MakeConstSpan(want).subspan(i * 128, 128)),
                   1e-4);
        }
      }
      (*runner)->Truncate(0);
      CHECK_OK((*runner)->Extend(prompt, true));
      const size_t vocab = logits.size() / positions.size();
      for (size_t i = 0; i < positions.size(); ++i) {
        CHECK_LE(WorstRelative((*runner)->Logits(static_cast<uint32_t>(positions[i])),
                               absl::MakeConstSpan(logits).subspan(i * vocab, vocab)),
                 2e-4);
      }
      const std::vector<uint32_t> greedy = golden->Tokens(prefix + "greedy.ids");
      const std::vector<float> margin = golden->Floats(prefix + "greedy.margin");
      uint32_t token = test::ArgMax((*runner)->Logits(static_cast<uint32_t>(prompt.size()) - 1));
      for (size_t i = 0; i < greedy.size() && margin[i] > 0.01f; ++i) {
        CHECK_EQ(token, greedy[i]);
        CHECK_OK((*runner)->Extend({token}, true));
        token = test::ArgMax((*runner)->Logits(0));
      }
    }
  }
}
