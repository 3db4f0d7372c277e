// SPDX-License-Identifier: MIT
//
// Synthetic models of whatever a ModelConfig says, and their logits on any device.
#ifndef MAINARCH_TESTS_SUPPORT_CONFIG_RUNS_H_
#define MAINARCH_TESTS_SUPPORT_CONFIG_RUNS_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/arch/arch.h"
#include "model/synthetic.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::test {

inline std::shared_ptr<const file::Checkpoint> WriteConfig(
    const model::ModelConfig& config,
    model::SyntheticFormat format = model::SyntheticFormat::kBF16) {
  const std::string directory = ScratchDirectory() + "/model";
  model::SyntheticOptions options;
  options.format = format;
  options.beyond_json = true;
  if (!model::WriteSyntheticCheckpoint(config, directory, options).ok()) return nullptr;
  auto checkpoint = file::Checkpoint::Open(directory);
  return checkpoint.ok() ? *checkpoint : nullptr;
}

// Logits of every token, in steps of as many rows as `counts` says, over and over.
inline StatusOr<std::vector<std::vector<float>>> RunTokens(
    const backend::LoadedModel& model, const backend::Program& program,
    absl::Span<const uint32_t> tokens, absl::Span<const uint32_t> counts, quant::KvType kv) {
  backend::ContextOptions options;
  options.kv_type = kv;
  options.max_rows = options.max_logit_rows = *std::max_element(counts.begin(), counts.end());
  options.pages.assign(program.caches.size(), 4);
  ASSIGN_OR_RETURN(const auto context, model.CreateContext(options));
  const std::vector<uint32_t> pages = {2, 0, 3};
  backend::StepCache cache;
  cache.pages = pages;
  const std::vector<backend::StepCache> caches(program.caches.size(), cache);
  const backend::StepSequence sequence = {caches, 0};
  std::vector<std::vector<float>> logits;
  for (size_t turn = 0; logits.size() < tokens.size(); ++turn) {
    std::vector<backend::StepRow> rows;
    std::vector<uint32_t> wanted;
    const uint32_t count = counts[turn % counts.size()];
    for (uint32_t i = 0; i < count && logits.size() + i < tokens.size(); ++i) {
      const uint32_t position = static_cast<uint32_t>(logits.size()) + i;
      rows.push_back({tokens[position], position, 0});
      wanted.push_back(i);
    }
    backend::Step step;
    step.rows = rows;
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    step.logit_rows = wanted;
    RETURN_IF_ERROR(context->Run(step));
    for (uint32_t i = 0; i < wanted.size(); ++i) {
      const absl::Span<float> row = context->Logits(i);
      logits.emplace_back(row.begin(), row.end());
    }
  }
  return logits;
}

// Logits of every token, in steps of 1 to 7 rows.
inline StatusOr<std::vector<std::vector<float>>> RunConfig(
    const model::ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
    absl::Span<const uint32_t> tokens, const std::string& device,
    quant::KvType kv = quant::KvType::kF32) {
  backend::BackendOptions device_options;
  device_options.device = device;
  device_options.threads = 2;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(device_options));
  model::Builder builder(config, std::move(checkpoint), backend->ranks());
  model::FindArch(config.model_type)->build(builder);
  ASSIGN_OR_RETURN(auto program, builder.Finish());
  ASSIGN_OR_RETURN(const auto loaded, backend->Load(program, {}));
  return RunTokens(*loaded, *program, tokens, {7, 1, 2, 3, 4, 5, 6}, kv);
}

// Largest error of any step, of the step's largest logit.
inline double WorstOf(absl::Span<const float> got, absl::Span<const double> want) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(double{got[i]} - want[i]);
    if (!(error <= worst)) worst = error;  // a NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_CONFIG_RUNS_H_
