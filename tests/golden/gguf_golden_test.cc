// SPDX-License-Identifier: MIT
//
// Whole models in GGUF: the same weights as safetensors give the same bits, and blocks of every
// format give what the fp64 reference makes of their values.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/gguf_writer.h"
#include "support/gpus.h"
#include "support/test.h"

namespace mainarch {
namespace {

using quant::Format;
using test::GgufWriter;
using test::Golden;
using test::Runner;

constexpr uint32_t kPrompt = 24;

// --- Writing. The names are spelt out once more here: the library's table is under test.

std::string GgufName(std::string name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  return absl::StrReplaceAll(name, {{"model.layers.", "blk."},
                                    {"input_layernorm", "attn_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"},
                                    {"mlp.gate.", "ffn_gate_inp."}});
}

uint32_t TypeNumber(Format format) {
  switch (format) {
    case Format::kF32:
      return 0;
    case Format::kF16:
      return 1;
    case Format::kQ4_0:
      return 2;
    case Format::kQ4_1:
      return 3;
    case Format::kQ5_0:
      return 6;
    case Format::kQ5_1:
      return 7;
    case Format::kQ8_0:
      return 8;
    case Format::kQ4K:
      return 12;
    case Format::kQ5K:
      return 13;
    case Format::kQ6K:
      return 14;
    case Format::kIq4Nl:
      return 20;
    case Format::kMxfp4Blocks:
      return 39;
    default:
      return 30;  // BF16
  }
}

void WriteKeys(const model::ModelConfig& config, GgufWriter* w) {
  const std::string arch = absl::StrReplaceAll(config.model_type, {{"_", ""}});
  const auto key = [&](const char* name) { return arch + "." + name; };
  w->Text("general.architecture", arch);
  w->U32(key("context_length"), static_cast<uint32_t>(config.max_position));
  w->U32(key("embedding_length"), static_cast<uint32_t>(config.hidden));
  w->U32(key("block_count"), static_cast<uint32_t>(config.layers));
  w->U32(key("feed_forward_length"), static_cast<uint32_t>(config.intermediate));
  w->U32(key("attention.head_count"), static_cast<uint32_t>(config.heads));
  w->U32(key("attention.head_count_kv"), static_cast<uint32_t>(config.kv_heads));
  w->U32(key("attention.key_length"), static_cast<uint32_t>(config.head_dim));
  w->U32(key("attention.value_length"), static_cast<uint32_t>(config.head_dim));
  w->F32(key("attention.layer_norm_rms_epsilon"), config.rms_eps);
  w->F32(key("rope.freq_base"), static_cast<float>(config.rope.theta));
  if (config.experts > 0) {
    w->U32(key("expert_count"), static_cast<uint32_t>(config.experts));
    w->U32(key("expert_used_count"), static_cast<uint32_t>(config.experts_per_token));
    w->U32(key("expert_feed_forward_length"), static_cast<uint32_t>(config.moe_intermediate));
  }
  w->U32("tokenizer.ggml.eos_token_id", 1);
  if (config.rope.kind != model::RopeKind::kLlama3) return;
  std::vector<float> factors;
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const double turns = static_cast<double>(config.rope.original_max_position) *
                         std::pow(config.rope.theta, -2.0 * i / config.head_dim) / (2 * M_PI);
    const double share = std::clamp((turns - 1) / 3, 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - share) / config.rope.factor + share)));
  }
  w->Tensor("rope_freqs.weight", {factors.size()}, 0,
            {reinterpret_cast<const char*>(factors.data()), factors.size() * 4});
}

// Rows of Q and K of a Llama go in pairs.
std::string InPairs(absl::string_view rows, size_t row_bytes, size_t head_dim) {
  std::string out(rows.size(), '\0');
  for (size_t row = 0; row < rows.size() / row_bytes; ++row) {
    const size_t in = row % head_dim, half = head_dim / 2;
    const size_t to = row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
    std::memcpy(out.data() + to * row_bytes, rows.data() + row * row_bytes, row_bytes);
  }
  return out;
}

// The tensors of a checkpoint of BF16 or F32, as they are.
std::string GgufOf(const file::Checkpoint& checkpoint, const model::ModelConfig& config) {
  GgufWriter w;
  WriteKeys(config, &w);
  std::map<std::string, std::string> experts;  // one behind the other
  for (const file::TensorView& tensor : checkpoint.tensors()) {
    std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    std::vector<uint64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    const uint32_t type = tensor.dtype == DType::kF32 ? 0 : 30;
    if (absl::StrContains(tensor.name, ".experts.")) continue;
    const bool paired = config.model_type == "llama" && (absl::StrContains(tensor.name, "q_proj") ||
                                                         absl::StrContains(tensor.name, "k_proj"));
    if (paired) {
      bytes = InPairs(bytes, bytes.size() / static_cast<size_t>(tensor.shape[0]),
                      static_cast<size_t>(config.head_dim));
    }
    w.Tensor(GgufName(tensor.name), shape, type, bytes);
  }
  for (int layer = 0; config.experts > 0 && layer < config.layers; ++layer) {
    for (const auto& [hf, gguf] :
         {std::pair("gate", "ffn_gate_exps"), std::pair("up", "ffn_up_exps"),
          std::pair("down", "ffn_down_exps")}) {
      std::string all;
      const file::TensorView* one = nullptr;
      for (int e = 0; e < config.experts; ++e) {
        one = checkpoint.Find(
            absl::StrCat("model.layers.", layer, ".mlp.experts.", e, ".", hf, "_proj.weight"));
        if (one == nullptr) break;
        all.append(reinterpret_cast<const char*>(one->bytes.data()), one->bytes.size());
      }
      if (one == nullptr) continue;
      w.Tensor(absl::StrCat("blk.", layer, ".", gguf, ".weight"),
               {static_cast<uint64_t>(one->shape[1]), static_cast<uint64_t>(one->shape[0]),
                static_cast<uint64_t>(config.experts)},
               30, all);
    }
  }
  return w.Done();
}

std::string WriteFile(const std::string& bytes) {
  const std::string path = test::ScratchDirectory() + "/model.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// --- Random blocks.

std::string RandomTensor(Format format, uint64_t rows, uint64_t cols, float scale,
                         std::mt19937* rng) {
  std::string bytes;
  std::uniform_real_distribution<float> uniform(-1, 1);
  if (format == Format::kF32) {
    for (uint64_t i = 0; i < rows * cols; ++i) bytes += test::LittleEndian(scale * uniform(*rng));
    return bytes;
  }
  const quant::FormatInfo& info = quant::InfoOf(format);
  bytes.resize(rows * cols / info.block_cols * info.block_bytes);
  for (char& c : bytes) c = static_cast<char>((*rng)());
  // The values of a block are up to this many times its scale; addends make them centred.
  const auto half = [](float value) {
    // Powers of two are enough.
    const int exponent = std::ilogb(value);
    return static_cast<uint16_t>((exponent + 15) << 10);
  };
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    char* block = bytes.data() + at;
    const auto put = [&](size_t where, uint16_t code) { std::memcpy(block + where, &code, 2); };
    switch (format) {
      case Format::kQ8_0:
        put(0, half(scale / 128));
        break;
      case Format::kIq4Nl:
        put(0, half(scale / 128));
        break;
      case Format::kQ4_0:
        put(0, half(scale / 8));
        break;
      case Format::kQ5_0:
        put(0, half(scale / 16));
        break;
      case Format::kQ4_1:
        put(0, half(scale / 8));
        put(2, half(scale) | 0x8000);
        break;
      case Format::kQ5_1:
        put(0, half(scale / 16));
        put(2, half(scale) | 0x8000);
        break;
      case Format::kQ4K:
        put(0, half(scale / 512));
        put(2, half(scale / 64));
        break;
      case Format::kQ5K:
        put(0, half(scale / 1024));
        put(2, half(scale / 64));
        break;
      case Format::kQ6K:
        put(208, half(scale / 4096));
        break;
      default:
        block[0] = static_cast<char>(127 + std::ilogb(scale) - 2);
        break;
    }
  }
  return bytes;
}

std::string RandomLlama(const model::ModelConfig& config, absl::Span<const Format> formats,
                        std::mt19937* rng) {
  GgufWriter w;
  WriteKeys(config, &w);
  size_t next = 0;
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
    const Format format = formats[next++ % formats.size()];
    const float scale = name == "token_embd.weight" ? 1.0f : 0.125f;
    w.Tensor(
        name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)}, TypeNumber(format),
        RandomTensor(format, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), scale, rng));
  };
  const auto norm = [&](const std::string& name, int32_t size) {
    w.Tensor(name, {static_cast<uint64_t>(size)}, 0,
             RandomTensor(Format::kF32, 1, static_cast<uint64_t>(size), 2, rng));
  };
  // Gate, up and down of a layer, of all experts if there are any: their matrices stand on each other.
  const auto feed_forward = [&](const std::string& p) {
    if (config.experts == 0) {
      add(p + "ffn_gate.weight", config.intermediate, config.hidden);
      add(p + "ffn_up.weight", config.intermediate, config.hidden);
      return add(p + "ffn_down.weight", config.hidden, config.intermediate);
    }
    const auto hidden = static_cast<uint64_t>(config.hidden), experts = static_cast<uint64_t>(config.experts);
    w.Tensor(p + "ffn_gate_inp.weight", {hidden, experts}, 0,
             RandomTensor(Format::kF32, experts, hidden, 0.125f, rng));
    const auto width = static_cast<uint64_t>(config.moe_intermediate);
    for (const auto& [name, rows, cols] :
         {std::tuple{"ffn_gate_exps", width, hidden}, {"ffn_up_exps", width, hidden}, {"ffn_down_exps", hidden, width}}) {
      const Format format = formats[name[4] == 'd' ? formats.size() - 1 : 0];
      w.Tensor(absl::StrCat(p, name, ".weight"), {cols, rows, experts}, TypeNumber(format),
               RandomTensor(format, experts * rows, cols, 0.125f, rng));
    }
  };
  const int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  add("token_embd.weight", config.vocab, config.hidden);
  norm("output_norm.weight", config.hidden);
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string p = absl::StrCat("blk.", layer, ".");
    norm(p + "attn_norm.weight", config.hidden);
    add(p + "attn_q.weight", q, config.hidden);
    add(p + "attn_k.weight", kv, config.hidden);
    add(p + "attn_v.weight", kv, config.hidden);
    add(p + "attn_output.weight", config.hidden, q);
    if (config.experts > 0) {  // Qwen3's
      norm(p + "attn_q_norm.weight", config.head_dim);
      norm(p + "attn_k_norm.weight", config.head_dim);
    }
    norm(p + "ffn_norm.weight", config.hidden);
    feed_forward(p);
  }
  return w.Done();
}

std::vector<uint32_t> Tokens(uint32_t vocab) {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < kPrompt; ++i) tokens.push_back((i * 37 + 11) % vocab);
  return tokens;
}

StatusOr<std::vector<std::vector<float>>> LogitsOf(
    const std::string& path, const test::Setting& setting,
    backend::Activations activations = backend::Activations::kF32,
    const std::vector<size_t>& pieces = {kPrompt}) {
  ASSIGN_OR_RETURN(const auto model, test::LoadOn(path, setting));
  ASSIGN_OR_RETURN(const auto runner,
                   Runner::Create(model, backend::KvType::kF32, kPrompt, activations));
  return test::AllLogits(runner.get(), Tokens(static_cast<uint32_t>(model->config().vocab)), pieces);
}

double WorstOf(const std::vector<std::vector<float>>& logits, const std::vector<std::vector<double>>& want) {
  double largest = 0, worst = 0;
  for (size_t row = 0; row < want.size(); ++row) {
    for (size_t i = 0; i < want[row].size(); ++i) {
      largest = std::max(largest, std::fabs(want[row][i]));
      worst = std::max(worst, std::fabs(logits[row][i] - want[row][i]));
    }
  }
  return largest > 0 ? worst / largest : INFINITY;
}

TEST(a_gguf_of_the_same_weights_gives_the_same_bits_and_the_golden_tokens) {
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    if (fixture.variant != "bf16" || fixture.fixture == "T1y" || fixture.fixture == "T2") continue;
    const std::string directory = test::WriteFixture(fixture);
    CHECK(!directory.empty());
    auto checkpoint = file::Checkpoint::Open(directory);
    CHECK_OK(checkpoint);
    const auto config = test::FixtureConfig(fixture.fixture);
    CHECK_OK(config);
    const std::string path = WriteFile(GgufOf(**checkpoint, *config));
    for (const test::Setting& setting : {test::Setting{}, test::Setting{"cpu:2", "", 2, false},
                                         test::Setting{"cpu", "", 2, true}}) {
      const auto safetensors = LogitsOf(directory, setting), gguf = LogitsOf(path, setting);
      CHECK_OK(safetensors);
      CHECK_OK(gguf);
      CHECK(*safetensors == *gguf);
    }
    const auto golden = Golden::Open(fixture.Name());
    CHECK_OK(golden);
    const auto model = test::LoadOn(path, {});
    CHECK_OK(model);
    const auto runner = Runner::Create(*model, backend::KvType::kF32, 64);
    CHECK_OK(runner);
    std::vector<uint32_t> prompt = golden->Tokens("prompt");
    prompt.resize(63);
    CHECK_OK((*runner)->Extend(prompt, /*all_logits=*/false));
    for (const uint32_t want : golden->Tokens("greedy.63.ids")) {
      const std::vector<float> logits = (*runner)->Logits(0);
      const auto best =
          static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      CHECK_EQ(best, want);
      CHECK_OK((*runner)->Extend({{best}}, /*all_logits=*/false));
    }
  }
}

// Written by the package that llama.cpp's converters use (gguf_models.py), one an architecture.
TEST(files_of_the_gguf_package_give_what_transformers_says) {
  const auto golden = Golden::Open("gguf/models");
  CHECK_OK(golden);
  for (const std::string name : {"llama", "mixtral", "granite", "qwen2", "qwen2moe", "qwen3",
                                 "qwen3moe", "gemma3", "phi3", "smollm3", "olmo2", "olmo3", "gpt-oss",
                                 "glm4moe", "minimax-m2", "deepseek2"}) {
    const std::vector<uint32_t> tokens = golden->Tokens(name + ".tokens");
    const std::vector<float> want = golden->Floats(name + ".logits");
    for (const test::Setting& setting : {test::Setting{}, test::Setting{"cpu:2", "", 2, true}}) {
      const auto model =
          test::LoadOn(test::SourcePath("tests/golden/data/gguf/" + name + ".gguf"), setting);
      if (!model.ok())
        std::printf("# %s: %s\n", name.c_str(), std::string(model.status().message()).c_str());
      CHECK_OK(model);
      if (!model.ok()) continue;
      const auto runner = Runner::Create(*model, backend::KvType::kF32, 16);
      CHECK_OK(runner);
      CHECK_OK((*runner)->Extend(tokens, /*all_logits=*/true));
      double largest = 0, worst = 0;
      for (uint32_t row = 0; row < tokens.size(); ++row) {
        const std::vector<float> logits = (*runner)->Logits(row);
        const size_t vocab = want.size() / tokens.size();
        for (size_t i = 0; i < vocab; ++i) {
          const double expected = double{want[row * vocab + i]};
          largest = std::max(largest, std::fabs(expected));
          worst = std::max(worst, std::fabs(double{logits[i]} - expected));
        }
      }
      if (worst > 2e-5 * largest) std::printf("# %s: %g of %g\n", name.c_str(), worst, largest);
      CHECK(largest > 0);
      CHECK_LE(worst, 2e-5 * largest);
    }
  }
}

TEST(experts_of_a_gguf_are_those_of_the_safetensors) {
  // All layers sparse: GGUF has no list of dense ones.
  auto config = test::FixtureConfig("T2");
  CHECK_OK(config);
  config->sparse_layer.assign(static_cast<size_t>(config->layers), true);
  const std::string directory = test::ScratchDirectory();
  CHECK_OK(model::WriteSyntheticCheckpoint(*config, directory, {}));
  auto checkpoint = file::Checkpoint::Open(directory);
  CHECK_OK(checkpoint);
  const std::string path = WriteFile(GgufOf(**checkpoint, *config));
  for (const test::Setting& setting : {test::Setting{}, test::Setting{"cpu:2", "", 2, false}}) {
    const auto safetensors = LogitsOf(directory, setting), gguf = LogitsOf(path, setting);
    CHECK_OK(safetensors);
    CHECK_OK(gguf);
    CHECK(*safetensors == *gguf);
  }
}

// With activations of 8 bits: near what is right, other bits than with fp32, and on each target one set of bits on
// any ranks, in any chunks, wherever weights lie.
void CheckInt8(test::Context& test_context, const std::string& path,
               const std::vector<std::vector<double>>& want, const std::vector<std::vector<float>>& exact) {
  std::map<std::string, std::vector<std::vector<float>>> first;
  double worst = 0;
  for (const test::Setting& setting : test::AllSettings()) {
    for (const std::vector<size_t>& pieces : std::vector<std::vector<size_t>>{{kPrompt}, {1}, {5, 9, 2}}) {
      const auto logits = LogitsOf(path, setting, backend::Activations::kInt8, pieces);
      CHECK_OK(logits);
      auto& own = first[setting.target];
      if (own.empty()) own = *logits;
      CHECK(own == *logits);
      worst = std::max(worst, WorstOf(*logits, want));
    }
  }
  CHECK(first[""] != exact);
  std::printf("# int8: worst %.1e\n", worst);
  CHECK_LE(worst, 0.05);
}

model::ModelConfig SmallConfig() {
  model::ModelConfig config;
  config.model_type = "llama";
  config.hidden = 256;
  config.layers = 2;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_dim = 32;
  config.intermediate = 512;
  config.vocab = 96;
  config.rms_eps = 1e-5f;
  config.max_position = 64;
  config.rope.theta = 1e4;
  return config;
}

const std::vector<std::vector<Format>> kMixes = {
    {Format::kQ8_0},
    {Format::kQ4_0},
    {Format::kQ4_1},
    {Format::kQ5_0},
    {Format::kQ5_1},
    {Format::kQ4K},
    {Format::kQ5K},
    {Format::kQ6K},
    {Format::kIq4Nl},
    {Format::kMxfp4Blocks},
    // Of one layer, as "M" mixtures have them: V and the like in another format than Q and K.
    {Format::kQ6K, Format::kQ4K, Format::kQ4K, Format::kQ6K, Format::kQ5K, Format::kQ4K, Format::kQ4K,
     Format::kQ6K},
    // Gate and up, too.
    {Format::kQ6K, Format::kQ4K, Format::kQ6K, Format::kQ4_1, Format::kQ8_0, Format::kQ6K, Format::kQ5_1,
     Format::kQ4_0},
    {Format::kQ8_0, Format::kF32, Format::kQ4_0, Format::kQ5_1, Format::kMxfp4Blocks, Format::kQ4K,
     Format::kIq4Nl}};

StatusOr<std::vector<std::vector<double>>> ReferenceOf(const std::string& path) {
  ASSIGN_OR_RETURN(auto checkpoint, file::Checkpoint::Open(path));
  ASSIGN_OR_RETURN(const auto read, model::ParseConfig(checkpoint->config_json(), "", path));
  ASSIGN_OR_RETURN(auto reference, reference::Decoder::Create(checkpoint, read, quant::KvType::kF32));
  std::vector<std::vector<double>> want;
  for (const uint32_t token : Tokens(96)) {
    RETURN_IF_ERROR(reference->Extend({{token}}));
    want.emplace_back(reference->logits().begin(), reference->logits().end());
  }
  return want;
}

TEST(blocks_of_every_format_give_what_the_fp64_reference_says_on_any_ranks) {
  std::mt19937 rng(3);
  for (const auto& formats : kMixes) {
    const std::string path = WriteFile(RandomLlama(SmallConfig(), formats, &rng));
    const auto want = ReferenceOf(path);
    CHECK_OK(want);
    std::vector<std::vector<float>> first;
    for (const test::Setting& setting : test::AllSettings()) {
      const auto logits = LogitsOf(path, setting);
      CHECK_OK(logits);
      CHECK_LE(WorstOf(*logits, *want), 2e-5);
      // Ranks and places do not show; targets do.
      if (!setting.target.empty()) continue;
      if (first.empty()) first = *logits;
      CHECK(first == *logits);
    }
    CheckInt8(test_context, path, *want, first);
  }
}

// The same on GPUs, near what is right and to the bit on any number of them, in any chunks: all on one chip and one number in
// turns, with MAINARCH_TEST_FULL on both and on up to four.
TEST(blocks_of_every_format_on_gpus) {
  NEEDS_GPUS();
  std::mt19937 rng(4);
  std::vector<std::pair<model::ModelConfig, std::vector<Format>>> models;
  for (const auto& formats : kMixes) models.emplace_back(SmallConfig(), formats);
  model::ModelConfig sparse = SmallConfig();
  sparse.model_type = "qwen3_moe";
  sparse.experts = 6;
  sparse.experts_per_token = 2;
  sparse.moe_intermediate = 256;
  // Gate and up in the first format, down in the last.
  for (const auto& formats : std::vector<std::vector<Format>>{
           {Format::kQ4K, Format::kQ6K}, {Format::kQ5K, Format::kQ6K}, {Format::kIq4Nl}, {Format::kQ5_1, Format::kQ4_0}}) {
    models.emplace_back(sparse, formats);
  }
  const bool full = std::getenv("MAINARCH_TEST_FULL") != nullptr;
  double worst = 0;
  size_t turn = 0;
  for (const auto& [config, formats] : models) {
    const std::string path = WriteFile(RandomLlama(config, formats, &rng));
    const auto want = ReferenceOf(path);
    CHECK_OK(want);
    const std::string own = turn++ % 2 == 0 ? "sim:gfx942" : "sim:gfx950";
    for (const std::string chip : {"sim:gfx942", "sim:gfx950"}) {
      if (chip != own && !full) continue;
      std::vector<std::vector<float>> first;
      for (const char* gpus : {"", "x2", "x4"}) {
        if (gpus == std::string("x4") && !full) continue;
        for (const std::vector<size_t>& pieces : std::vector<std::vector<size_t>>{{kPrompt}, {5, 9, 2}}) {
          const auto logits =
              LogitsOf(path, {chip + gpus, "", 0, false}, backend::Activations::kF32, pieces);
          CHECK_OK(logits);
          if (first.empty()) first = *logits;
          CHECK(first == *logits);
        }
      }
      const double off = WorstOf(first, *want);
      worst = std::max(worst, off);
      CHECK_LE(off, 1e-4);
    }
  }
  std::printf("# worst %.1e\n", worst);
}

}  // namespace
}  // namespace mainarch
