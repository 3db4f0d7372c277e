// SPDX-License-Identifier: MIT
//
// Property: on the GPU path a token's logits are the same bits whatever else is in the step,
// however the prompt was cut, however many GPUs there are, and in whatever order the machine does
// what it may do in any order.
//
// An all-reduce of more than 16 rows takes two rounds, a smaller one takes one: cutting a prompt
// into pieces compares the two as well.
#include <cstdlib>

#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/synthetic.h"
#include "support/test.h"

using namespace mainarch;
using test::AllLogits;
using test::Prompt;
using test::Runner;
using test::Same;

namespace {

StatusOr<std::unique_ptr<Runner>> RunnerOn(const std::string& directory, const std::string& device,
                                           backend::KvType kv, uint32_t max_rows) {
  ASSIGN_OR_RETURN(auto model, test::LoadOn(directory, {device, "", 0, false}));
  return Runner::Create(model, kv, max_rows);
}

// Of a dense model one layer.
model::ModelConfig DenseLayer(int32_t hidden, int32_t heads, int32_t kv_heads, int32_t head_dim) {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = hidden;
  c.layers = 1;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.intermediate = 4096;
  c.vocab = 512;
  c.max_position = 512;
  c.tied_embeddings = true;
  c.rms_eps = 1e-6f;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = head_dim;
  c.sparse_layer.assign(1, false);
  return c;
}

}  // namespace

TEST(pieces_of_a_prompt_change_no_bit) {
  const std::vector<uint32_t> tokens = Prompt(45, 512);
  struct Where {
    test::FixtureCase fixture;
    std::string device;
    backend::KvType kv;
  };
  for (const Where& where :
       std::vector<Where>{{{"T1", "fp8-block", 1}, "sim:gfx950x2", backend::KvType::kFp8},
                          {{"T2", "mxfp4", 1}, "sim:gfx950x4", backend::KvType::kBF16},
                          {{"T2", "bf16", 1}, "sim:gfx942", backend::KvType::kFp8},
                          {{"T1", "bf16", 1}, "sim:gfx950x2", backend::KvType::kFp4},
                          {{"T2", "bf16", 1}, "sim:gfx942x2", backend::KvType::kK8V4}}) {
    const std::string directory = test::WriteFixture(where.fixture);
    CHECK(!directory.empty());
    auto runner = RunnerOn(directory, where.device, where.kv, 45);
    CHECK_OK(runner);
    std::vector<std::vector<float>> want;
    for (const std::vector<size_t>& pieces :
         std::vector<std::vector<size_t>>{{45}, {45}, {1}, {33, 12}, {16, 17, 3}}) {
      auto logits = AllLogits(runner->get(), tokens, pieces);
      CHECK_OK(logits);
      if (want.empty()) want = *logits;
      for (size_t i = 0; i < want.size(); ++i) CHECK(Same((*logits)[i], want[i]));
    }
  }
}

namespace {

// Logits of a prompt that takes the two rounds of a large all-reduce, and of a few tokens after it,
// on 1, 2, 4 and 8 GPUs.
void CheckRanks(test::Context& test_context, const test::FixtureCase& fixture, const char* isa,
                backend::KvType kv, backend::Activations activations) {
  const std::string directory = test::WriteFixture(fixture);
  CHECK(!directory.empty());
  std::printf("# %s on %s, KV %d, activations %d\n", fixture.Name().c_str(), isa,
              static_cast<int>(kv), static_cast<int>(activations));
  std::fflush(stdout);
  const std::vector<uint32_t> tokens = Prompt(37, 512);
  std::vector<std::vector<float>> want;
  for (const char* count : {"", "x2", "x4", "x8"}) {
    const std::string device = std::string("sim:") + isa + count;
    auto model = test::LoadOn(directory, {device, "", 0, false});
    CHECK_OK(model);
    auto runner = Runner::Create(*model, kv, 34, activations);
    CHECK_OK(runner);
    auto logits = AllLogits(runner->get(), tokens, {34, 2, 1});
    CHECK_OK(logits);
    if (want.empty()) want = *logits;
    for (size_t i = 0; i < want.size(); ++i) {
      if (!Same((*logits)[i], want[i])) std::printf("# %s: position %zu\n", device.c_str(), i);
      CHECK(Same((*logits)[i], want[i]));
    }
  }
}

}  // namespace

// Every fixture once, chips, KV types and activations taking turns; with MAINARCH_GPU_MATRIX=1 every
// fixture with each of them.
TEST(the_number_of_gpus_changes_no_bit) {
  const bool matrix = std::getenv("MAINARCH_GPU_MATRIX") != nullptr;
  size_t turn = 0;
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    size_t each = 0;
    for (backend::Activations activations :
         {backend::Activations::kF32, backend::Activations::kBF16}) {
      for (backend::KvType kv :
           {backend::KvType::kBF16, backend::KvType::kFp8, backend::KvType::kF32}) {
        for (const char* isa : {"gfx942", "gfx950"}) {
          // 5 is prime to the twelve combinations: twelve fixtures meet them all.
          if (matrix || each == turn * 5 % 12) {
            CheckRanks(test_context, fixture, isa, kv, activations);
          }
          ++each;
        }
      }
    }
    ++turn;
  }
}

TEST(the_number_of_gpus_changes_no_bit_of_four) {
  constexpr auto kF32 = backend::Activations::kF32, kRounded = backend::Activations::kBF16;
  CheckRanks(test_context, {"T2", "bf16", 1}, "gfx950", backend::KvType::kFp4, kF32);
  CheckRanks(test_context, {"T1", "bf16", 1}, "gfx942", backend::KvType::kFp4, kRounded);
  CheckRanks(test_context, {"T1", "fp8-block", 1}, "gfx950", backend::KvType::kK8V4, kRounded);
}

TEST(the_number_of_gpus_changes_no_bit_of_mxfp8) {
  CheckRanks(test_context, {"T1", "mxfp4", 1}, "gfx950", backend::KvType::kBF16, backend::Activations::kMxfp8);
  CheckRanks(test_context, {"T2", "mxfp4", 1}, "gfx950", backend::KvType::kFp8, backend::Activations::kMxfp8);
}

// FP8 blocks by MXFP8 where each of eight parts of k is of such, and rounded to bf16 where they are not (the product behind heads,
// of 1,280 columns).
TEST(the_number_of_gpus_changes_no_bit_of_fp8_blocks) {
  const model::ModelConfig c = DenseLayer(512, 20, 4, 64);
  const std::string directory = absl::StrCat(test::ScratchDirectory(), "/blocks");
  model::SyntheticOptions options;
  options.format = model::SyntheticFormat::kFp8Block;
  CHECK_OK(model::WriteSyntheticCheckpoint(c, directory, options));
  const std::vector<uint32_t> tokens = Prompt(69, 512);
  std::vector<std::vector<float>> want;
  for (const char* count : {"", "x2", "x4"}) {
    auto model = test::LoadOn(directory, {absl::StrCat("sim:gfx950", count), "", 0, false});
    CHECK_OK(model);
    auto runner = Runner::Create(*model, backend::KvType::kBF16, 66, backend::Activations::kMxfp8);
    CHECK_OK(runner);
    auto logits = AllLogits(runner->get(), tokens, {66, 2, 1});
    CHECK_OK(logits);
    if (want.empty()) want = *logits;
    for (size_t i = 0; i < want.size(); ++i) CHECK(Same((*logits)[i], want[i]));
  }
}

// Several attention splits, walked in one step and in many, agree with each other and with the CPU.
TEST(long_contexts_change_no_bit) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1}, 1024);
  CHECK(!directory.empty());
  const std::vector<uint32_t> tokens = Prompt(530, 512);
  auto runner = RunnerOn(directory, "sim:gfx950", backend::KvType::kF32, 530);
  CHECK_OK(runner);
  auto want = AllLogits(runner->get(), tokens, {530});
  CHECK_OK(want);
  auto again = AllLogits(runner->get(), tokens, {500, 11, 1, 1, 17});
  CHECK_OK(again);
  for (size_t i = 0; i < want->size(); ++i) CHECK(Same((*again)[i], (*want)[i]));
  auto cpu = RunnerOn(directory, "cpu", backend::KvType::kF32, 530);
  CHECK_OK(cpu);
  auto other = AllLogits(cpu->get(), tokens, {530});
  CHECK_OK(other);
  for (size_t i : {size_t{510}, size_t{511}, size_t{512}, size_t{529}}) {
    for (size_t v = 0; v < (*want)[i].size(); ++v) {
      CHECK_LE(std::abs((*want)[i][v] - (*other)[i][v]), 2e-4f * 32);
    }
  }
}

// Rows of a prompt are attended with together, each with a window of its own: of steps of more than 32 rows, and of few.
TEST(windows_change_no_bit) {
  struct Where {
    backend::KvType kv;
    const char* device;
    int32_t window;
  };
  const std::vector<uint32_t> tokens = Prompt(300, 256);
  for (const Where& where : {Where{backend::KvType::kBF16, "sim:gfx950", 150}, Where{backend::KvType::kFp8, "sim:gfx942x2", 21},
                             Where{backend::KvType::kFp4, "sim:gfx950x2", 128}, Where{backend::KvType::kK8V4, "sim:gfx942", 5},
                             Where{backend::KvType::kF32, "sim:gfx950", 33}}) {
    model::ModelConfig c = test::SmallDense(512);
    c.layer_attention = {{where.window, 0}, {0, 0}, {where.window, 0}, {where.window, 0}};
    const std::string directory = absl::StrCat(test::ScratchDirectory(), "/window", where.window);
    CHECK_OK(model::WriteSyntheticCheckpoint(c, directory, {}));
    auto runner = RunnerOn(directory, where.device, where.kv, 300);
    CHECK_OK(runner);
    auto want = AllLogits(runner->get(), tokens, {300});
    CHECK_OK(want);
    for (const std::vector<size_t>& pieces : {std::vector<size_t>{32, 32, 32, 32, 32, 32, 32, 32, 32, 12}, {170, 1, 129}}) {
      auto logits = AllLogits(runner->get(), tokens, pieces);
      CHECK_OK(logits);
      for (size_t i = 0; i < want->size(); ++i) CHECK(Same((*logits)[i], (*want)[i]));
    }
  }
}

// Where a context may be long other kernels attend: what they give of a short one are the same bits, and they do not
// depend on pieces or on the number of GPUs either.
TEST(room_for_a_long_context_changes_no_bit) {
  const std::string short_one = test::WriteFixture({"T1", "bf16", 1}, 1024);
  const std::string long_one = test::WriteFixture({"T1", "bf16", 1}, 66'000);
  CHECK(!short_one.empty());
  CHECK(!long_one.empty());
  const std::vector<uint32_t> tokens = Prompt(300, 512);
  struct Where {
    backend::KvType kv;
    const char *device, *other;
  };
  for (const Where& where : {Where{backend::KvType::kBF16, "sim:gfx950", "sim:gfx950x2"},
                             Where{backend::KvType::kFp8, "sim:gfx942", "sim:gfx942x2"},
                             Where{backend::KvType::kF32, "sim:gfx942", "sim:gfx942"},
                             Where{backend::KvType::kFp4, "sim:gfx950", "sim:gfx950x2"},
                             Where{backend::KvType::kK8V4, "sim:gfx942", "sim:gfx942"}}) {
    auto runner = RunnerOn(short_one, where.device, where.kv, 300);
    CHECK_OK(runner);
    auto want = AllLogits(runner->get(), tokens, {300});
    CHECK_OK(want);
    auto other = RunnerOn(long_one, where.other, where.kv, 290);
    CHECK_OK(other);
    auto logits = AllLogits(other->get(), tokens, {290, 9, 1});
    CHECK_OK(logits);
    for (size_t i = 0; i < want->size(); ++i) CHECK(Same((*logits)[i], (*want)[i]));
  }
}

// Ranks that hold the same KV head share what long rows read, in steps of few rows: the bits are those of one GPU, which
// has no one to share with, and of steps of many rows.
TEST(shared_heads_change_no_bit) {
  struct Where {
    int32_t kv_heads;
    backend::KvType kv;
    const char* isa;
    std::vector<const char*> counts;
  };
  for (const Where& where : {Where{1, backend::KvType::kFp4, "gfx950", {"", "x2", "x8"}},
                             Where{2, backend::KvType::kFp8, "gfx942", {"", "x4"}}}) {
    model::ModelConfig c;
    c.model_type = "qwen3";
    c.hidden = 256;
    c.layers = 3;
    c.heads = 8 * where.kv_heads;
    c.kv_heads = where.kv_heads;
    c.head_dim = 32;
    c.intermediate = 128;
    c.vocab = 512;
    c.max_position = 66'000;
    c.tied_embeddings = true;
    c.rms_eps = 1e-6f;
    c.rope.theta = 1e6;
    c.rope.rotary_dim = 32;
    c.sparse_layer.assign(3, false);
    const std::string directory = test::ScratchDirectory() + "/shared" + std::to_string(where.kv_heads);
    CHECK_OK(model::WriteSyntheticCheckpoint(c, directory, {}));
    const std::vector<uint32_t> tokens = Prompt(300, 512);
    std::vector<std::vector<float>> want;
    for (const char* count : where.counts) {
      const std::string device = std::string("sim:") + where.isa + count;
      auto model = test::LoadOn(directory, {device, "", 0, false});
      CHECK_OK(model);
      for (const std::vector<size_t>& pieces : std::vector<std::vector<size_t>>{{300}, {140, 12, 120, 16, 9, 1}}) {
        auto runner = Runner::Create(*model, where.kv, 300, backend::Activations::kF32, 150);
        CHECK_OK(runner);
        auto logits = AllLogits(runner->get(), tokens, pieces);
        CHECK_OK(logits);
        if (want.empty()) want = *logits;
        for (size_t i = 0; i < want.size(); ++i) {
          if (!Same((*logits)[i], want[i])) std::printf("# %s: position %zu\n", device.c_str(), i);
          CHECK(Same((*logits)[i], want[i]));
        }
      }
    }
  }
}

TEST(orders_of_arrival_change_no_bit) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  const std::vector<uint32_t> tokens = Prompt(5, 512);
  const int seeds = std::getenv("MAINARCH_GPU_MATRIX") != nullptr ? 64 : 6;
  for (const char* node : {"sim:gfx950x4", "sim:gfx942x2"}) {
    std::vector<std::vector<float>> want;
    for (int seed = 1; seed <= seeds; ++seed) {
      const std::string device = std::string(node) + ",seed=" + std::to_string(seed);
      auto runner = RunnerOn(directory, device, backend::KvType::kBF16, 5);
      CHECK_OK(runner);
      auto logits = AllLogits(runner->get(), tokens, {3, 1, 1});
      CHECK_OK(logits);
      if (want.empty()) want = *logits;
      for (size_t i = 0; i < want.size(); ++i) {
        if (!Same((*logits)[i], want[i])) std::printf("# %s: position %zu\n", device.c_str(), i);
        CHECK(Same((*logits)[i], want[i]));
      }
    }
  }
}

TEST(batch_mix_changes_no_bit) {
  const std::string directory = test::WriteFixture({"T2", "fp8-block", 1});
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx950x2", "", 0, false});
  CHECK_OK(model);
  test::Mix mix;
  mix.tokens = 30;
  mix.sequences = 4;
  mix.max_rows = 24;
  CHECK_OK(test::RunBatchMix(*model, mix));
}

// In steps of few rows workgroups share the k of a product, and rows and what rounding left of them lie
// side by side in a matrix instruction; in larger ones neither; steps of more than 256
// rows have the kernels for many.
TEST(products_of_any_number_of_rows_have_the_same_bits) {
  const model::ModelConfig c = DenseLayer(2560, 32, 2, 128);
  struct Where {
    model::SyntheticFormat format;
    const char* device;
    backend::Activations activations;
  };
  using Format = model::SyntheticFormat;
  for (const Where& where : std::vector<Where>{{Format::kBF16, "sim:gfx950", backend::Activations::kF32},
                                               {Format::kFp8Block, "sim:gfx942", backend::Activations::kF32},
                                               {Format::kMxfp4, "sim:gfx950", backend::Activations::kBF16},
                                               {Format::kMxfp4, "sim:gfx950", backend::Activations::kMxfp8},
                                               {Format::kFp8Block, "sim:gfx950", backend::Activations::kMxfp8}}) {
    const std::string directory = absl::StrCat(test::ScratchDirectory(), "/shared", static_cast<int>(where.format));
    model::SyntheticOptions options;
    options.format = where.format;
    CHECK_OK(model::WriteSyntheticCheckpoint(c, directory, options));
    const std::vector<uint32_t> tokens = Prompt(512, 512);
    auto model = test::LoadOn(directory, {where.device, "", 0, false});
    CHECK_OK(model);
    auto runner = Runner::Create(*model, backend::KvType::kBF16, 512, where.activations);
    CHECK_OK(runner);
    auto want = AllLogits(runner->get(), tokens, {512});
    CHECK_OK(want);
    auto again = AllLogits(runner->get(), tokens, {300, 130, 62, 15, 5});
    CHECK_OK(again);
    for (size_t i = 0; i < want->size(); ++i) CHECK(Same((*again)[i], (*want)[i]));
  }
}

// Prompts' rows are grouped by expert, where that pays; smaller steps' are not, and take the same lines in turns.
TEST(grouped_experts_have_the_same_bits) {
  model::ModelConfig c;
  c.model_type = "qwen3_moe";
  c.hidden = 512;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 64;
  c.vocab = 256;
  c.max_position = 256;
  c.rms_eps = 1e-6f;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = 64;
  c.experts = 7;
  c.experts_per_token = 2;
  c.moe_intermediate = 128;
  c.norm_topk_prob = true;
  c.sparse_layer.assign(2, true);
  struct Where {
    model::SyntheticFormat format;
    const char* chip;
    backend::Activations activations;
  };
  using Format = model::SyntheticFormat;
  for (const Where& where : std::vector<Where>{{Format::kBF16, "sim:gfx950", backend::Activations::kF32},
                                               {Format::kFp8Channel, "sim:gfx942", backend::Activations::kBF16},
                                               {Format::kMxfp4, "sim:gfx950", backend::Activations::kF32},
                                               {Format::kMxfp4, "sim:gfx950", backend::Activations::kMxfp8},
                                               {Format::kFp8Block, "sim:gfx950", backend::Activations::kMxfp8}}) {
    const std::string directory = absl::StrCat(test::ScratchDirectory(), "/grouped", static_cast<int>(where.format));
    model::SyntheticOptions options;
    options.format = where.format;
    CHECK_OK(model::WriteSyntheticCheckpoint(c, directory, options));
    const std::vector<uint32_t> tokens = Prompt(132, 256);
    std::vector<std::vector<float>> want;
    for (const char* ranks : {"", "x2"}) {
      auto model = test::LoadOn(directory, {absl::StrCat(where.chip, ranks), "", 0, false});
      CHECK_OK(model);
      auto runner = Runner::Create(*model, backend::KvType::kBF16, 132, where.activations);
      CHECK_OK(runner);
      for (const std::vector<size_t>& pieces : std::vector<std::vector<size_t>>{{132}, {70, 1, 40, 3, 18}, {16}}) {
        const auto logits = AllLogits(runner->get(), tokens, pieces);
        CHECK_OK(logits);
        if (want.empty()) want = *logits;
        for (size_t i = 0; i < want.size(); ++i) CHECK(Same((*logits)[i], want[i]));
      }
    }
  }
}
