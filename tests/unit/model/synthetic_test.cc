// SPDX-License-Identifier: MIT
#include "model/synthetic.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "file/checkpoint.h"
#include "model/config_json.h"
#include "model/linear.h"
#include "model/synthetic_values.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::model {
namespace {

ModelConfig Dense() {
  ModelConfig config;
  config.model_type = "qwen3";
  config.hidden = 64;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.intermediate = 160;  // ragged blocks of 128
  config.vocab = 300;
  config.max_position = 512;
  config.rope.rotary_dim = 32;
  config.sparse_layer = {false, false};
  config.eos_ids = {1, 7};
  return config;
}

ModelConfig Moe() {
  ModelConfig config = Dense();
  config.model_type = "qwen3_moe";
  config.layers = 3;
  config.experts = 4;
  config.experts_per_token = 2;
  config.moe_intermediate = 96;
  config.norm_topk_prob = true;
  config.sparse_layer = {true, false, true};
  return config;
}

constexpr SyntheticFormat kAll[] = {SyntheticFormat::kBF16,        SyntheticFormat::kF16,
                                    SyntheticFormat::kF32,         SyntheticFormat::kFp8Block,
                                    SyntheticFormat::kFp8Channel,  SyntheticFormat::kMxfp4,
                                    SyntheticFormat::kMxfp4AttnFp8};

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(dir);
  return names;
}

std::string Fresh() { return test::ScratchDirectory() + "/model"; }

StatusOr<std::shared_ptr<const file::Checkpoint>> Make(const ModelConfig& config,
                                                       const SyntheticOptions& options) {
  const std::string directory = Fresh();
  RETURN_IF_ERROR(WriteSyntheticCheckpoint(config, directory, options));
  return file::Checkpoint::Open(directory);
}

TEST(hashes_are_the_published_ones) {
  CHECK_EQ(Fnv1a64(""), 0xcbf29ce484222325u);
  CHECK_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cu);
  CHECK_EQ(Fnv1a64("foobar"), 0x85944171f73967e8u);
  // The first three outputs of the generator seeded with 1234567.
  const uint64_t step = 0x9E3779B97F4A7C15u;
  CHECK_EQ(SplitMix64(1234567), 6457827717110365317u);
  CHECK_EQ(SplitMix64(1234567 + step), 3203168211198807973u);
  CHECK_EQ(SplitMix64(1234567 + 2 * step), 9817491932198370423u);
  CHECK_EQ(SyntheticKey("a", 0), Fnv1a64("a"));
  CHECK_EQ(SyntheticKey("a", 5), Fnv1a64("a") ^ SplitMix64(5));
}

TEST(linear_scales_are_powers_of_two_and_ties_are_even) {
  CHECK_EQ(LinearScale(3), 1.0f);
  CHECK_EQ(LinearScale(128), 0.125f);
  CHECK_EQ(LinearScale(320), 0.125f);
  CHECK_EQ(LinearScale(384), 0.0625f);  // -3.5: to -4
  CHECK_EQ(LinearScale(96), 0.25f);     // -2.5: to -2
  CHECK_EQ(LinearScale(6), 1.0f);       // -0.5: to 0
  CHECK_EQ(LinearScale(4096), 0.03125f);
}

TEST(values_are_bf16_of_the_hash) {
  float values[1000];
  const uint64_t key = Fnv1a64("x");
  FillValues(key, 77, 1000, 0, 1, values);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const double u = static_cast<double>(SplitMix64(key + 77 + i) >> 40) / 8388608.0 - 1;
    CHECK_LE(std::fabs(values[i] - u), std::fabs(u) / 256);  // half a unit of 8 bits
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    CHECK_EQ(bits & 0xffff, 0u);
    sum += values[i];
  }
  CHECK_LT(std::fabs(sum / 1000), 0.1);
  float part[10];
  FillValues(key, 77 + 500, 10, 0, 1, part);
  CHECK_EQ(std::memcmp(part, values + 500, sizeof(part)), 0);
}

TEST(configs_round_trip_exactly) {
  ModelConfig config = Moe();
  config.rms_eps = 1.1e-6f;
  config.tied_embeddings = true;
  config.rope.theta = 1234567.1;
  config.rope.kind = RopeKind::kYarn;
  config.rope.factor = 3.3;
  config.rope.original_max_position = 64;
  config.rope.attention_factor = 1.0 / 3;
  config.rope.beta_fast = 31.7;
  config.rope.beta_slow = 0.3;
  config.rope.truncate = false;
  config.temperature = 0.7f;
  config.top_p = 0.95f;
  config.top_k = 20;
  config.min_p = 0.05f;
  config.repetition_penalty = 1.05f;
  {
    const auto read =
        ParseConfig(ConfigJson(config, "bfloat16", ""), GenerationConfigJson(config), "dir");
    CHECK_OK(read);
    CHECK_EQ(read->rms_eps, config.rms_eps);
    CHECK(read->tied_embeddings);
    CHECK_EQ(read->rope.theta, config.rope.theta);
    CHECK_EQ(read->rope.rotary_dim, 32);
    CHECK_EQ(read->rope.factor, config.rope.factor);
    CHECK_EQ(read->rope.original_max_position, 64);
    CHECK_EQ(read->rope.attention_factor, config.rope.attention_factor);
    CHECK_EQ(read->rope.beta_fast, config.rope.beta_fast);
    CHECK_EQ(read->rope.beta_slow, config.rope.beta_slow);
    CHECK(!read->rope.truncate);
    CHECK(read->sparse_layer == config.sparse_layer);
    CHECK(read->norm_topk_prob);
    CHECK(read->eos_ids == config.eos_ids);
    CHECK_EQ(read->temperature, config.temperature);
    CHECK_EQ(read->top_p, config.top_p);
    CHECK_EQ(read->top_k, config.top_k);
    CHECK_EQ(read->min_p, config.min_p);
    CHECK_EQ(read->repetition_penalty, config.repetition_penalty);
    CHECK_EQ(read->intermediate, config.intermediate);
    CHECK_EQ(read->moe_intermediate, config.moe_intermediate);
    CHECK_EQ(read->max_position, config.max_position);
  }
}

TEST(parts_of_heads_and_longrope_round_trip) {
  for (const int32_t rotary : {2, 6, 22, 30, 32}) {
    ModelConfig config = Dense();
    config.model_type = "phi3";
    config.rope.rotary_dim = rotary;
    auto read = ParseConfig(ConfigJson(config, "bfloat16", ""), "", "dir");
    CHECK_OK(read);
    CHECK(read->rope == config.rope);
    config.rope.kind = RopeKind::kLongRope;
    config.rope.attention_factor = 1.0 / 3;
    config.rope.original_max_position = 16;
    for (int32_t i = 0; i < rotary / 2; ++i) config.rope.divisors.push_back(1 + i / 3.0);
    read = ParseConfig(ConfigJson(config, "bfloat16", ""), "", "dir");
    CHECK_OK(read);
    CHECK(read->rope == config.rope);
  }
}

TEST(llama3_scaling_round_trips) {
  ModelConfig config = Dense();
  config.rope.kind = RopeKind::kLlama3;
  config.rope.factor = 7.7;
  config.rope.original_max_position = 64;
  config.rope.low_freq_factor = 1.1;
  config.rope.high_freq_factor = 3.9;
  const auto read = ParseConfig(ConfigJson(config, "bfloat16", ""), "", "dir");
  CHECK_OK(read);
  CHECK(read->rope.kind == RopeKind::kLlama3);
  CHECK_EQ(read->rope.factor, config.rope.factor);
  CHECK_EQ(read->rope.original_max_position, 64);
  CHECK_EQ(read->rope.low_freq_factor, config.rope.low_freq_factor);
  CHECK_EQ(read->rope.high_freq_factor, config.rope.high_freq_factor);
}

// Every weight of every format is found where a loader looks for it and is near the bf16 one.
TEST(every_format_loads_back_near_the_bf16_values) {
  for (const ModelConfig& config : {Dense(), Moe()}) {
    SyntheticOptions options;
    const auto plain = Make(config, options);
    CHECK_OK(plain);
    for (const SyntheticFormat format : kAll) {
      options.format = format;
      const auto checkpoint = Make(config, options);
      CHECK_OK(checkpoint);
      for (const file::TensorView& tensor : (*plain)->tensors()) {
        if (tensor.shape.size() != 2) {
          CHECK_OK(FindVector(**checkpoint, tensor.name, tensor.shape[0]));
          continue;
        }
        const std::string name = tensor.name.substr(0, tensor.name.size() - 7);
        const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
        const auto exact = FindLinear(**plain, name, rows, cols);
        CHECK_OK(exact);
        const auto matrix = FindLinear(**checkpoint, name, rows, cols);
        CHECK_OK(matrix);
        std::vector<float> a(static_cast<size_t>(cols)), b(a.size());
        double error = 0, norm = 0;
        for (int64_t row = 0; row < rows; ++row) {
          quant::DecodeRow(*exact, row, 0, cols, a.data());
          quant::DecodeRow(*matrix, row, 0, cols, b.data());
          for (size_t i = 0; i < a.size(); ++i) {
            error += (a[i] - b[i]) * (a[i] - b[i]);
            norm += a[i] * a[i];
          }
        }
        const bool mxfp4 = matrix->format == quant::Format::kMxfp4;
        const bool fp8 = matrix->format == quant::Format::kFp8Block ||
                         matrix->format == quant::Format::kFp8Channel;
        const double relative = std::sqrt(error / norm);
        CHECK_LE(relative, mxfp4 ? 0.13 : (fp8 ? 0.03 : 1e-3));
        if (mxfp4) CHECK_GT(relative, 0.05);  // it is quantised
        if (fp8) CHECK_GT(relative, 0.01);
      }
    }
  }
}

TEST(only_linears_of_attention_and_mlp_are_quantised) {
  SyntheticOptions options;
  options.format = SyntheticFormat::kMxfp4AttnFp8;
  const auto checkpoint = Make(Moe(), options);
  CHECK_OK(checkpoint);
  const auto dtype = [&](const char* name) {
    const file::TensorView* tensor = (*checkpoint)->Find(name);
    return tensor == nullptr ? "none" : std::string(NameOf(tensor->dtype));
  };
  CHECK_EQ(dtype("model.embed_tokens.weight"), "BF16");
  CHECK_EQ(dtype("lm_head.weight"), "BF16");
  CHECK_EQ(dtype("model.norm.weight"), "BF16");
  CHECK_EQ(dtype("model.layers.0.mlp.gate.weight"), "BF16");
  CHECK_EQ(dtype("model.layers.0.self_attn.q_norm.weight"), "BF16");
  CHECK_EQ(dtype("model.layers.0.self_attn.o_proj.weight"), "F8_E4M3");
  CHECK_EQ(dtype("model.layers.0.self_attn.o_proj.weight_scale"), "F32");
  CHECK_EQ(dtype("model.layers.0.mlp.experts.3.down_proj.weight"), "U8");
  CHECK_EQ(dtype("model.layers.0.mlp.experts.3.down_proj.weight_scale"), "U8");
  CHECK_EQ(dtype("model.layers.1.mlp.up_proj.weight"), "U8");
  CHECK_EQ(dtype("model.layers.1.mlp.gate.weight"), "none");
}

TEST(shards_hold_the_same_tensors) {
  SyntheticOptions options;
  options.format = SyntheticFormat::kFp8Block;
  options.seed = 9;
  const auto one = Make(Moe(), options);
  CHECK_OK(one);
  options.shards = 4;
  const auto four = Make(Moe(), options);
  CHECK_OK(four);
  CHECK_EQ((*one)->tensors().size(), (*four)->tensors().size());
  for (const file::TensorView& tensor : (*one)->tensors()) {
    const file::TensorView* other = (*four)->Find(tensor.name);
    CHECK(other != nullptr);
    CHECK(other->bytes == tensor.bytes);
    // Aligned to the element, in both.
    CHECK_EQ(reinterpret_cast<uintptr_t>(other->bytes.data()) % BytesOf(other->dtype), 0u);
  }
  CHECK_EQ(Names((*four)->directory()).size(), 4u + 3u);
  CHECK_EQ(Names((*one)->directory()).size(), 1u + 2u);
}

TEST(seeds_differ_and_repeat) {
  SyntheticOptions options;
  const auto a = Make(Dense(), options), b = Make(Dense(), options);
  options.seed = 1;
  const auto c = Make(Dense(), options);
  CHECK_OK(a);
  CHECK_OK(b);
  CHECK_OK(c);
  const char* name = "model.layers.1.mlp.up_proj.weight";
  CHECK((*a)->Find(name)->bytes == (*b)->Find(name)->bytes);
  CHECK(!((*a)->Find(name)->bytes == (*c)->Find(name)->bytes));
}

TEST(progress_reaches_the_total) {
  SyntheticOptions options;
  options.format = SyntheticFormat::kMxfp4;
  uint64_t last = 0, total = 0;
  bool grows = true;
  options.progress = [&](uint64_t done, uint64_t all) {
    grows = grows && done > last && done <= all;
    last = done;
    total = all;
    return true;
  };
  const auto checkpoint = Make(Dense(), options);
  CHECK_OK(checkpoint);
  CHECK(grows);
  uint64_t bytes = 0;
  for (const file::TensorView& tensor : (*checkpoint)->tensors()) bytes += tensor.bytes.size();
  CHECK_EQ(last, bytes);
  CHECK_EQ(total, bytes);
}

TEST(cancelling_leaves_nothing) {
  for (const bool existing : {false, true}) {
    const std::string directory = Fresh();
    if (existing) {
      CHECK_EQ(mkdir(directory.c_str(), 0700), 0);
      CHECK(test::WriteFile(directory + "/notes", "mine"));
    }
    SyntheticOptions options;
    options.shards = 2;
    int calls = 0;
    options.progress = [&](uint64_t, uint64_t) { return ++calls < 5; };
    CHECK_REFUSED(WriteSyntheticCheckpoint(Dense(), directory, options), Code::kCancelled,
                  directory.c_str(), "cancelled");
    CHECK_EQ(calls, 5);
    CHECK_EQ(Names(directory).size(), existing ? 1u : 0u);
    struct stat info;
    CHECK_EQ(stat(directory.c_str(), &info), existing ? 0 : -1);
  }
}

TEST(a_full_disk_is_a_status_and_leaves_nothing) {
  const std::string directory = Fresh();
  // A limit on file sizes stands in for the disk; its signal is ignored for an errno instead.
  rlimit before;
  CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 100000;
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteSyntheticCheckpoint(Dense(), directory, {});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK_REFUSED(status, Code::kIo, "model.safetensors", "File too large");
  CHECK_EQ(ErrnoOf(status), EFBIG);
  CHECK_EQ(Names(directory).size(), 0u);
}

TEST(bad_requests_are_refused_and_leave_nothing) {
  const std::string directory = Fresh();
  SyntheticOptions options;
  options.shards = 0;
  CHECK_REFUSED(WriteSyntheticCheckpoint(Dense(), directory, options), Code::kInvalidArgument,
                "shards is 0", "1 and");
  options.shards = 257;
  CHECK_REFUSED(WriteSyntheticCheckpoint(Dense(), directory, options), Code::kInvalidArgument,
                "shards is 257");
  options.shards = 1;
  ModelConfig config = Dense();
  config.intermediate = 100;
  CHECK_OK(WriteSyntheticCheckpoint(config, Fresh(), options));
  options.format = SyntheticFormat::kMxfp4;
  CHECK_REFUSED(WriteSyntheticCheckpoint(config, directory, options), Code::kInvalidArgument,
                "down_proj.weight", "100 columns", "32");
  options.format = SyntheticFormat::kBF16;
  config = Dense();
  config.hidden = 0;
  CHECK_REFUSED(WriteSyntheticCheckpoint(config, directory, options), Code::kBadModel,
                "hidden_size is 0");
  config = Dense();
  config.model_type = "mamba";
  CHECK_REFUSED(WriteSyntheticCheckpoint(config, directory, options), Code::kUnsupported,
                "\"mamba\"");
  config = Dense();
  config.rms_eps = NAN;
  CHECK_REFUSED(WriteSyntheticCheckpoint(config, directory, options), Code::kBadModel,
                "config.json");
  config = Dense();
  config.sparse_layer = {true, false};
  CHECK_REFUSED(WriteSyntheticCheckpoint(config, directory, options), Code::kInvalidArgument,
                "model_type qwen3", "1 of 2");
  config.sparse_layer = {};
  CHECK_REFUSED(WriteSyntheticCheckpoint(config, directory, options), Code::kInvalidArgument,
                "0 of 0");
  struct stat info;
  CHECK_EQ(stat(directory.c_str(), &info), -1);
  CHECK_REFUSED(WriteSyntheticCheckpoint(Dense(), directory + "/deeper/still", options), Code::kIo,
                "deeper/still", "No such file");
}

TEST(a_directory_with_a_checkpoint_is_left_alone) {
  const std::string directory = Fresh();
  CHECK_OK(WriteSyntheticCheckpoint(Dense(), directory, {}));
  const size_t files = Names(directory).size();
  CHECK_REFUSED(WriteSyntheticCheckpoint(Dense(), directory, {}), Code::kInvalidArgument,
                "config.json", "exists");
  CHECK_EQ(Names(directory).size(), files);
  CHECK_OK(file::Checkpoint::Open(directory));
}

TEST(formats_have_names) {
  for (const char* name :
       {"bf16", "f16", "f32", "fp8-block", "fp8-channel", "mxfp4", "mxfp4-attnfp8"}) {
    CHECK_OK(SyntheticFormatFromName(name));
  }
  CHECK_REFUSED(SyntheticFormatFromName("int4"), Code::kInvalidArgument, "\"int4\"", "fp8-block");
}

}  // namespace
}  // namespace mainarch::model
