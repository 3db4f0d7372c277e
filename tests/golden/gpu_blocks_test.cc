// SPDX-License-Identifier: MIT
//
// What hybrid models have beside their recurrent layers, and what blocks have behind them and in them, on
// GPUs: heads of 256 that turn in part, with a gate; an expert for all tokens beside 512; norms behind
// blocks, with others before them or without; biases and activations of feed-forwards. Against the fp64
// decoder, on both chips, and the same bits on 1, 2 and, with MAINARCH_TEST_FULL, as many GPUs as heads
// allow.
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/fd.h"
#include "golden/golden.h"
#include "reference/decoder.h"
#include "support/checkpoint_files.h"
#include "support/config_runs.h"
#include "support/test.h"

using namespace mainarch;

namespace {

constexpr uint32_t kVocab = 96;
const bool kFull = std::getenv("MAINARCH_TEST_FULL") != nullptr;

model::ModelConfig Base() {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = 72;  // not whole blocks of 16
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 64;
  c.intermediate = 96;
  c.vocab = kVocab;
  c.max_position = 512;
  c.rope.theta = 1e4;
  c.rope.rotary_dim = 64;
  c.sparse_layer.assign(2, false);
  c.attention.qk_norm = true;
  return c;
}

// As Qwen3-Next has it, but for its sizes and for its norms' weights, which begin at one:
// NormsBehind() has those. Here synthetic ones, about 1, would become 2, and experts would multiply
// what rounding left, on CPUs as on GPUs.
model::ModelConfig Hybrid() {
  model::ModelConfig c = Base();
  c.model_type = "qwen3_moe";
  c.head_dim = 256;
  c.attention.output_gate = true;
  c.experts = 512;
  c.experts_per_token = 10;
  c.moe_intermediate = 32;
  c.norm_topk_prob = true;
  c.shared_intermediate = 64;
  c.shared_gate = true;
  c.sparse_layer.assign(2, true);
  return c;
}

// Norms behind blocks as well, and a factor of what they add.
model::ModelConfig NormsBehind() {
  model::ModelConfig c = Base();
  c.norms.after = c.norms.plus_one = true;
  c.residual_scale = 0.6;
  c.rope.rotary_dim = 24;
  return c;
}

// A factor alone, and no norms of heads.
model::ModelConfig Factor() {
  model::ModelConfig c = Base();
  c.residual_scale = 0.6;
  c.attention.qk_norm = false;
  c.attention.qkv_bias = true;
  c.rope.rotary_dim = 6;
  return c;
}

// As Gemma 3 has it, but for its windows.
model::ModelConfig Gelu() {
  model::ModelConfig c = Base();
  c.norms.after = c.norms.plus_one = true;
  c.activation = backend::Activation::kGeluTanh;
  c.embedding_scale = 8.5;
  c.vocab = kVocab + 5;  // ranks' shares are uneven, and no tiles
  return c;
}

// Biases of all products, and an activation of the kernels' third kind; ranks' shares of the feed-forward
// are 32 and 72 columns.
model::ModelConfig Biased() {
  model::ModelConfig c = Base();
  c.intermediate = 104;
  c.attention.qkv_bias = c.attention.o_bias = c.mlp_bias = true;
  c.activation = backend::Activation::kClampedSwiglu;
  return c;
}

// As OLMo 2 has it, but for its norms of Q and K: products take x as it is.
model::ModelConfig OnlyBehind() {
  model::ModelConfig c = Base();
  c.norms.before = false;
  c.norms.after = true;
  return c;
}

// Experts with another activation, and one for all tokens that is no expert.
model::ModelConfig GeluExperts() {
  model::ModelConfig c = Base();
  c.model_type = "qwen3_moe";
  c.activation = backend::Activation::kGeluTanh;
  c.experts = 6;
  c.experts_per_token = 3;
  c.moe_intermediate = 40;
  c.shared_intermediate = 56;
  c.sparse_layer.assign(2, true);
  return c;
}

// As wide as gpt-oss 20B and 120B, with narrower experts: shares of eight GPUs are uneven.
model::ModelConfig GptOssWidths() {
  model::ModelConfig c = GeluExperts();
  c.activation = backend::Activation::kClampedSwiglu;
  c.hidden = 2880;
  c.moe_intermediate = kFull ? 736 : 352;
  c.layers = 1;
  c.sparse_layer.resize(1);
  c.experts = c.experts_per_token = 2;
  c.shared_intermediate = 0;
  c.heads = c.kv_heads = 8;
  return c;
}

// DeepSeek's attention with what is odd about it: a latent of queries of no whole steps, heads that begin within one.
model::ModelConfig Latents(model::LatentConfig latent) {
  model::ModelConfig c = Base();
  c.model_type = "deepseek_v3";
  c.kv_heads = c.heads;
  c.latent = latent;
  c.head_dim = latent.still + latent.turning;
  c.rope.rotary_dim = latent.turning;
  c.attention.qk_norm = false;
  c.layers = 1;
  c.sparse_layer.resize(1);
  // The file speaks of experts, though every layer is dense.
  c.experts = 4;
  c.experts_per_token = 2;
  c.moe_intermediate = c.shared_intermediate = 32;
  c.router.sigmoid = c.router.correction = true;
  return c;
}

void CheckConfig(test::Context& test_context, const model::ModelConfig& config, uint32_t count,
                 model::SyntheticFormat format = model::SyntheticFormat::kBF16) {
  const auto checkpoint = test::WriteConfig(config, format);
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(count, kVocab);
  auto decoder = reference::Decoder::Create(checkpoint, config, quant::KvType::kF32);
  CHECK_OK(decoder);
  std::vector<std::vector<double>> want;
  for (const uint32_t token : tokens) {
    CHECK_OK((*decoder)->Extend({token}));
    const auto logits = (*decoder)->logits();
    want.emplace_back(logits.begin(), logits.end());
  }
  for (const std::string isa : {"gfx942", "gfx950"}) {
    std::vector<std::vector<float>> one;
    for (const int32_t ranks : {1, 2, 4, 8}) {
      if (ranks > (kFull ? config.heads : 2)) continue;
      // Checkers look at one chip by itself and at two of the other kind; where there is time, at all but the
      // widest, since they remember every byte.
      const bool checked =
          kFull ? ranks * config.hidden < 8192 : (isa == "gfx942") == (ranks == 1);
      const std::string device =
          absl::StrCat("sim:", isa, "x", ranks, checked ? ",poison=1,check=all" : "");
      std::printf("# %s\n", device.c_str());
      std::fflush(stdout);
      const auto got = test::RunConfig(config, checkpoint, tokens, device);
      CHECK_OK(got);
      for (size_t at = 0; at < want.size(); ++at) {
        CHECK_LE(test::WorstOf((*got)[at], want[at]), 1e-4);
      }
      if (one.empty()) one = *got;
      for (size_t at = 0; at < want.size(); ++at) CHECK(test::Same((*got)[at], one[at]));
    }
  }
}

// A checkpoint in FP8 blocks whose scales of kv_b_proj, about the same of hashed weights, are far apart.
std::shared_ptr<const file::Checkpoint> WriteBlocks(const model::ModelConfig& config) {
  const std::string directory = test::ScratchDirectory() + "/model", path = directory + "/model.safetensors";
  model::SyntheticOptions options;
  options.beyond_json = true;
  options.format = model::SyntheticFormat::kFp8Block;
  if (!model::WriteSyntheticCheckpoint(config, directory, options).ok()) return nullptr;
  auto bytes = ReadWholeFile(path, 1 << 26);
  if (!bytes.ok()) return nullptr;
  uint64_t header = 0;
  std::memcpy(&header, bytes->data(), sizeof(header));
  const size_t name = bytes->find("kv_b_proj.weight_scale_inv"), at = bytes->find("data_offsets", name);
  if (at == std::string::npos) return nullptr;
  const char* const offsets = bytes->c_str() + bytes->find('[', at) + 1;
  const size_t begin = std::strtoull(offsets, nullptr, 10), end = std::strtoull(std::strchr(offsets, ',') + 1, nullptr, 10);
  for (size_t i = begin; i < end; i += sizeof(float)) {
    float scale;
    std::memcpy(&scale, &(*bytes)[8 + header + i], sizeof(scale));
    scale *= 1 + static_cast<float>(i - begin) / 16;
    std::memcpy(&(*bytes)[8 + header + i], &scale, sizeof(scale));
  }
  std::ofstream(path, std::ios::binary) << *bytes;
  auto checkpoint = file::Checkpoint::Open(directory);
  return checkpoint.ok() ? *checkpoint : nullptr;
}

}  // namespace

TEST(a_hybrids_other_half_matches_fp64) { CheckConfig(test_context, Hybrid(), kFull ? 45 : 4); }
TEST(norms_behind_blocks_match_fp64) { CheckConfig(test_context, NormsBehind(), kFull ? 19 : 8); }
TEST(gelu_matches_fp64) { CheckConfig(test_context, Gelu(), kFull ? 19 : 3); }
TEST(biases_of_all_products_match_fp64) { CheckConfig(test_context, Biased(), kFull ? 19 : 8); }
TEST(norms_only_behind_blocks_match_fp64) { CheckConfig(test_context, OnlyBehind(), kFull ? 19 : 8); }
TEST(experts_with_gelu_match_fp64) { CheckConfig(test_context, GeluExperts(), kFull ? 19 : 3); }
TEST(mxfp4_experts_of_gpt_oss_widths_match_fp64) {
  CheckConfig(test_context, GptOssWidths(), kFull ? 8 : 2, model::SyntheticFormat::kMxfp4);
}
TEST(a_factor_of_blocks_matches_fp64) { CheckConfig(test_context, Factor(), kFull ? 19 : 3); }

TEST(latents_match_fp64) {
  CheckConfig(test_context, Latents({64, 40, 32, 16, 32, true}), kFull ? 45 : 19);
  CheckConfig(test_context, Latents({32, 0, 16, 64, 64, false}), kFull ? 19 : 3);
}

// FP8 blocks of what makes keys of latents are turned as they are, where heads have blocks of their own.
TEST(latents_in_blocks_match_fp64) {
  model::ModelConfig config = Latents({192, 128, 256, 64, 128, true});
  for (const int32_t still : {256, 64}) {  // whole blocks, and not
    config.latent.still = still;
    config.head_dim = still + config.latent.turning;
    const auto checkpoint = WriteBlocks(config);
    CHECK(checkpoint != nullptr);
    const std::vector<uint32_t> tokens = test::Prompt(5, kVocab);
    auto decoder = reference::Decoder::Create(checkpoint, config, quant::KvType::kF32);
    CHECK_OK(decoder);
    CHECK_OK((*decoder)->Extend(tokens));
    const auto last = (*decoder)->logits();
    const std::vector<double> want(last.begin(), last.end());
    for (const auto& [device, bound] :
         std::vector<std::pair<std::string, double>>{{"cpu:2", 2e-5}, {"sim:gfx942", 1e-4}, {"sim:gfx950x2", 1e-4}}) {
      const auto got = test::RunConfig(config, checkpoint, tokens, device);
      CHECK_OK(got);
      std::printf("# %d stay, %s: %.1e\n", still, device.c_str(), test::WorstOf(got->back(), want));
      CHECK_LE(test::WorstOf(got->back(), want), bound);
    }
  }
}

// More query heads to a key head than a workgroup has.
TEST(many_queries_to_a_key_head_match_fp64) {
  model::ModelConfig config = Base();
  config.layers = 1;
  config.sparse_layer.resize(1);
  config.heads = 20;
  config.kv_heads = 1;
  CheckConfig(test_context, config, kFull ? 45 : 18);
}

// Those of sizes that are no power of two, too. In every type of KV, and in full of every size in each.
TEST(wide_heads_have_the_same_bits_on_any_number_of_gpus) {
  constexpr quant::KvType kTypes[] = {quant::KvType::kBF16, quant::KvType::kFp8, quant::KvType::kF32, quant::KvType::kFp4,
                                      quant::KvType::kK8V4};
  constexpr int32_t kHeadDims[] = {256, 96, 192};
  model::ModelConfig config = Base();
  config.layers = 1;
  config.sparse_layer.resize(1);
  config.attention.output_gate = true;
  const std::vector<uint32_t> tokens = test::Prompt(kFull ? 45 : 18, kVocab);
  for (size_t d = 0; d < std::size(kHeadDims); ++d) {
    config.head_dim = kHeadDims[d];
    const auto checkpoint = test::WriteConfig(config);
    CHECK(checkpoint != nullptr);
    for (size_t i = kFull ? 0 : d; i < std::size(kTypes); i += kFull ? 1 : std::size(kHeadDims)) {
      const std::string isa = i % 2 == 0 ? "sim:gfx942" : "sim:gfx950";
      const auto one = test::RunConfig(config, checkpoint, tokens, isa, kTypes[i]);
      CHECK_OK(one);
      const auto two = test::RunConfig(config, checkpoint, tokens, isa + "x2", kTypes[i]);
      CHECK_OK(two);
      for (size_t at = 0; at < one->size(); ++at) CHECK(test::Same((*one)[at], (*two)[at]));
    }
  }
}
