// SPDX-License-Identifier: MIT
//
// Everything that a config may say of attention, alone and together: the Program that the builder
// makes of it, on the CPU, against the fp64 decoder, which walks the config; and the same bits on
// 1, 2 and 4 ranks.
#include <cmath>

#include "backend/backend.h"
#include "golden/golden.h"
#include "model/arch/arch.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch {
namespace {

constexpr uint32_t kTokens = 45;

model::ModelConfig Base() {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = 72;  // not whole blocks of 16
  c.layers = 4;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate = 96;
  c.vocab = 160;
  c.max_position = 512;
  c.rope.theta = 1e4;
  c.rope.rotary_dim = 32;
  c.sparse_layer.assign(4, false);
  return c;
}

enum Feature : uint32_t {
  kNoNorm = 1,
  kQkvBias = 2,
  kOBias = 4,
  kGate = 8,
  kSinks = 16,
  kWindows = 32,
  kPartial = 64,
  kRopes = 128,  // another in some layers, none in one
  kLlama3 = 256,
  kAll = 511,
};

model::ModelConfig With(uint32_t features) {
  model::ModelConfig c = Base();
  c.attention.qk_norm = (features & kNoNorm) == 0;
  c.attention.qkv_bias = (features & kQkvBias) != 0;
  c.attention.o_bias = (features & kOBias) != 0;
  c.attention.output_gate = (features & kGate) != 0;
  c.attention.sinks = (features & kSinks) != 0;
  if ((features & kPartial) != 0) c.rope.rotary_dim = 12;
  if ((features & kLlama3) != 0) {
    c.rope.llama3 = true;
    c.rope.factor = 8;
    c.rope.original_max_position = 64;
  }
  if ((features & (kWindows | kRopes)) != 0) c.layer_attention.resize(4);
  if ((features & kWindows) != 0) {
    c.layer_attention[0].window = 5;
    c.layer_attention[2].window = 20;
    c.layer_attention[3].window = 5;
  }
  if ((features & kRopes) != 0) {
    c.more_ropes.resize(1);
    c.more_ropes[0].theta = 77;
    c.more_ropes[0].rotary_dim = 8;
    c.layer_attention[1].rope = 1;
    c.layer_attention[2].rope = model::kNoRope;
  }
  return c;
}

std::shared_ptr<const file::Checkpoint> Write(const model::ModelConfig& config) {
  const std::string directory = test::ScratchDirectory() + "/model";
  model::SyntheticOptions options;
  options.beyond_json = true;
  if (!model::WriteSyntheticCheckpoint(config, directory, options).ok()) return nullptr;
  auto checkpoint = file::Checkpoint::Open(directory);
  return checkpoint.ok() ? *checkpoint : nullptr;
}

// Logits of every token, in steps of 1 to 7 rows.
StatusOr<std::vector<std::vector<float>>> Run(const model::ModelConfig& config,
                                              std::shared_ptr<const file::Checkpoint> checkpoint,
                                              absl::Span<const uint32_t> tokens,
                                              const std::string& device) {
  backend::BackendOptions device_options;
  device_options.device = device;
  device_options.threads = 2;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(device_options));
  model::Builder builder(config, std::move(checkpoint), backend->ranks());
  model::FindArch(config.model_type)->build(builder);
  ASSIGN_OR_RETURN(auto program, builder.Finish());
  ASSIGN_OR_RETURN(const auto loaded, backend->Load(program, {}));
  backend::ContextOptions options;
  options.kv_type = quant::KvType::kF32;
  options.max_rows = options.max_logit_rows = 7;
  options.pages.assign(program->caches.size(), 4);
  ASSIGN_OR_RETURN(const auto context, loaded->CreateContext(options));
  const std::vector<uint32_t> pages = {2, 0, 3};
  backend::StepCache cache;
  cache.pages = pages;
  const std::vector<backend::StepCache> caches(program->caches.size(), cache);
  const backend::StepSequence sequence = {caches, 0};
  std::vector<std::vector<float>> logits;
  for (uint32_t count = 7; logits.size() < tokens.size(); count = count % 7 + 1) {
    std::vector<backend::StepRow> rows;
    std::vector<uint32_t> wanted;
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

// Largest error of any step, of the step's largest logit.
double WorstOf(absl::Span<const float> got, absl::Span<const double> want) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(double{got[i]} - want[i]);
    if (!(error <= worst)) worst = error;  // a NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

void CheckFeatures(test::Context& test_context, uint32_t features) {
  const model::ModelConfig config = With(features);
  const auto checkpoint = Write(config);
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, 160);
  const auto got = Run(config, checkpoint, tokens, "cpu");
  CHECK_OK(got);
  auto decoder = reference::Decoder::Create(checkpoint, config, quant::KvType::kF32);
  CHECK_OK(decoder);
  for (size_t at = 0; at < tokens.size(); ++at) {
    CHECK_OK((*decoder)->Extend({tokens[at]}));
    CHECK_LE(WorstOf((*got)[at], (*decoder)->logits()), 2e-5);
  }
  for (const char* device : {"cpu:2", "cpu:4"}) {
    const auto ranks = Run(config, checkpoint, tokens, device);
    CHECK_OK(ranks);
    for (size_t at = 0; at < tokens.size(); ++at) CHECK(test::Same((*got)[at], (*ranks)[at]));
  }
}

TEST(every_feature_alone_matches_fp64) {
  CheckFeatures(test_context, 0);
  for (uint32_t feature = 1; feature <= kLlama3; feature *= 2) CheckFeatures(test_context, feature);
}

TEST(features_together_match_fp64) {
  for (const uint32_t features :
       {kNoNorm | kQkvBias, kQkvBias | kGate, kWindows | kSinks, kPartial | kRopes,
        kNoNorm | kWindows | kRopes, kQkvBias | kOBias | kSinks | kWindows, kAll + 0u}) {
    CheckFeatures(test_context, features);
  }
}

// No feature is one that neither side sees: each changes the logits.
TEST(every_feature_changes_the_logits) {
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, 160);
  const auto plain = Run(Base(), Write(Base()), tokens, "cpu");
  CHECK_OK(plain);
  for (uint32_t feature = 1; feature <= kLlama3; feature *= 2) {
    const auto got = Run(With(feature), Write(With(feature)), tokens, "cpu");
    CHECK_OK(got);
    CHECK_GT(test::WorstRelative(got->back(), plain->back()), 1e-3);
  }
}

TEST(what_no_config_json_says_is_refused_without_the_option) {
  const std::string directory = test::ScratchDirectory() + "/model";
  for (uint32_t feature = 1; feature <= kRopes; feature *= 2) {
    if (feature == kPartial) continue;  // which config.json says
    CHECK(!model::WriteSyntheticCheckpoint(With(feature), directory, {}).ok());
  }
  CHECK_REFUSED(model::WriteSyntheticCheckpoint(With(kSinks), directory, {}),
                Code::kInvalidArgument, "model_type qwen3", "attention");
  CHECK_OK(model::WriteSyntheticCheckpoint(With(kPartial), directory, {}));
}

}  // namespace
}  // namespace mainarch
