// SPDX-License-Identifier: MIT
//
// Everything that a config may say of attention, norms and dense feed-forwards, alone and together:
// the Program that the builder makes of it, on the CPU, against the fp64 decoder, which walks the
// config; and the same bits on 1, 2 and 4 ranks.
#include <cmath>

#include "golden/golden.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/checkpoint_files.h"
#include "support/config_runs.h"
#include "support/test.h"

namespace mainarch {
namespace {

using test::RunConfig;
using test::WorstOf;
using test::WriteConfig;

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
  // From here on what stands beside attention, and what excludes some of the above.
  kWideNorm = 1 << 9,  // instead of norms of each head
  kFused = 1 << 10,    // qkv_proj, gate_up_proj
  kScores = 1 << 11,   // another factor of the scores
  kLinear = 1 << 12,
  kLongRope = 1 << 13,
  kNormBehind = 1 << 14,
  kNormBoth = 1 << 15,
  kPlusOne = 1 << 16,
  kGelu = 1 << 17,
  kClamped = 1 << 18,
  kMlpBias = 1 << 19,
  kFactors = 1 << 20,  // of embeddings, blocks, logits
  kEnd = 1 << 21,
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
    c.rope.kind = model::RopeKind::kLlama3;
    c.rope.factor = 8;
    c.rope.original_max_position = 64;
  }
  const auto has = [features](Feature feature) { return (features & feature) != 0; };
  if (has(kWideNorm)) {
    c.attention.qk_norm = false;
    c.attention.wide_qk_norm = true;
  }
  c.attention.fused_qkv = c.fused_gate_up = has(kFused);
  if (has(kScores)) c.attention.scale = 0.07;
  if (has(kLinear)) {
    c.rope.kind = model::RopeKind::kLinear;
    c.rope.factor = 2.5;
  }
  if (has(kLongRope)) {
    c.rope.kind = model::RopeKind::kLongRope;
    c.rope.attention_factor = 1.2;
    c.rope.original_max_position = 64;
    for (int i = 0; i < 16; ++i) c.rope.divisors.push_back(1 + 0.3 * i);
  }
  c.norms.before = !has(kNormBehind);
  c.norms.after = has(kNormBehind) || has(kNormBoth);
  c.norms.plus_one = has(kPlusOne);
  if (has(kGelu)) c.activation = backend::Activation::kGeluTanh;
  if (has(kClamped)) c.activation = backend::Activation::kClampedSwiglu;
  c.mlp_bias = has(kMlpBias);
  if (has(kFactors)) {
    c.embedding_scale = 3.3;
    c.residual_scale = 0.6;
    c.logits_scale = 0.4;
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

void CheckConfig(test::Context& test_context, const model::ModelConfig& config) {
  const auto checkpoint = WriteConfig(config);
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, 160);
  const auto got = RunConfig(config, checkpoint, tokens, "cpu");
  CHECK_OK(got);
  auto decoder = reference::Decoder::Create(checkpoint, config, quant::KvType::kF32);
  CHECK_OK(decoder);
  for (size_t at = 0; at < tokens.size(); ++at) {
    CHECK_OK((*decoder)->Extend({tokens[at]}));
    CHECK_LE(WorstOf((*got)[at], (*decoder)->logits()), 2e-5);
  }
  for (const char* device : {"cpu:2", "cpu:4"}) {
    const auto ranks = RunConfig(config, checkpoint, tokens, device);
    CHECK_OK(ranks);
    for (size_t at = 0; at < tokens.size(); ++at) CHECK(test::Same((*got)[at], (*ranks)[at]));
  }
}

void CheckFeatures(test::Context& test_context, uint32_t features) {
  CheckConfig(test_context, With(features));
}

TEST(every_feature_alone_matches_fp64) {
  CheckFeatures(test_context, 0);
  for (uint32_t feature = 1; feature < kEnd; feature *= 2) CheckFeatures(test_context, feature);
}

TEST(features_together_match_fp64) {
  for (const uint32_t features :
       {kNoNorm | kQkvBias, kQkvBias | kGate, kWindows | kSinks, kPartial | kRopes,
        kNoNorm | kWindows | kRopes, kQkvBias | kOBias | kSinks | kWindows, kAll + 0u,
        kWideNorm | kQkvBias | kNormBehind, kFused | kQkvBias | kMlpBias | kWindows,
        kNormBoth | kPlusOne | kGelu | kFactors | kScores, kClamped | kMlpBias | kSinks,
        kWideNorm | kNormBoth | kFactors | kOBias | kMlpBias}) {
    CheckFeatures(test_context, features);
  }
}

// Such heads are widened before attention: what goes by their own width is done first.
TEST(heads_of_any_multiple_of_8_match_fp64) {
  for (const uint32_t features : {0u, kNoNorm | kQkvBias, kQkvBias | kOBias | kSinks | kWindows, kWideNorm | kQkvBias | kNormBehind,
                                  kFused | kQkvBias | kMlpBias, kNormBoth | kPlusOne | kGelu | kScores}) {
    for (const int32_t head_dim : {8, 24, 40, 120}) {
      model::ModelConfig config = With(features);
      config.head_dim = config.rope.rotary_dim = head_dim;
      CheckConfig(test_context, config);
    }
  }
  model::ModelConfig gated = With(kGate);
  gated.head_dim = gated.rope.rotary_dim = 24;
  CHECK_REFUSED(RunConfig(gated, WriteConfig(gated), {1}, "cpu"), Code::kUnsupported, "head_dim 24 is not a multiple of 16");
  gated = With(0);
  gated.head_dim = gated.rope.rotary_dim = 12;
  CHECK_REFUSED(RunConfig(gated, WriteConfig(gated), {1}, "cpu"), Code::kUnsupported, "head_dim 12 is not a multiple of 8");
}

// No feature is one that neither side sees: each changes the logits.
TEST(every_feature_changes_the_logits) {
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, 160);
  const auto plain = RunConfig(Base(), WriteConfig(Base()), tokens, "cpu");
  CHECK_OK(plain);
  for (uint32_t feature = 1; feature < kEnd; feature *= 2) {
    const auto got = RunConfig(With(feature), WriteConfig(With(feature)), tokens, "cpu");
    CHECK_OK(got);
    CHECK_GT(test::WorstRelative(got->back(), plain->back()), 1e-3);
  }
}

// Scores, corrections, groups, factors, the expert for all tokens: each way in which experts are
// chosen.
TEST(experts_match_fp64) {
  model::ModelConfig base = Base();
  base.model_type = "qwen3_moe";
  base.layers = 2;
  base.experts = 8;
  base.experts_per_token = 3;
  base.moe_intermediate = 40;
  base.sparse_layer = {true, true};
  std::vector<model::ModelConfig> configs(7, base);
  configs[0].norm_topk_prob = true;
  configs[1].router.sigmoid = true;
  configs[2].router = {
      .sigmoid = true, .correction = true, .groups = 4, .chosen_groups = 2, .scale = 1.7};
  configs[3].router = {.bias = true, .correction = true, .groups = 2, .chosen_groups = 2};
  configs[4].shared_intermediate = 56;
  configs[5].shared_intermediate = 24;
  configs[5].shared_gate = true;
  configs[6].expert_names = model::ExpertNames::kMixtral;
  configs[6].router = {.sigmoid = true, .correction = true};
  configs[6].activation = backend::Activation::kGeluTanh;
  for (const model::ModelConfig& config : configs) CheckConfig(test_context, config);
}

TEST(heads_that_ranks_do_not_divide_are_refused_with_the_numbers_that_do) {
  model::ModelConfig config = Base();
  config.heads = 12;
  config.kv_heads = 3;
  const auto checkpoint = WriteConfig(config);
  CHECK(checkpoint != nullptr);
  CHECK_REFUSED(RunConfig(config, checkpoint, {1}, "cpu:8"), Code::kUnsupported,
                "12 attention heads",
                "8 ranks", "numbers of ranks that do: 1");
  CHECK_REFUSED(RunConfig(config, checkpoint, {1}, "cpu:2"), Code::kUnsupported,
                "3 key/value heads",
                "2 ranks", "numbers of ranks that do: 1");
}

TEST(what_no_config_json_says_is_refused_without_the_option) {
  const std::string directory = test::ScratchDirectory() + "/model";
  for (uint32_t feature = 1; feature <= kRopes; feature *= 2) {
    CHECK(!model::WriteSyntheticCheckpoint(With(feature), directory, {}).ok());
  }
  CHECK_REFUSED(model::WriteSyntheticCheckpoint(With(kSinks), directory, {}),
                Code::kInvalidArgument, "model_type qwen3", "attention");
  CHECK_OK(model::WriteSyntheticCheckpoint(With(kLlama3), directory, {}));
}

}  // namespace
}  // namespace mainarch
