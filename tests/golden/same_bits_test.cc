// SPDX-License-Identifier: MIT
//
// Property: a token's logits are the same bits whatever else is in the step, however the prompt was
// cut, however many threads, ranks or kinds of weight storage there are.
#include <array>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/dispatch.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using test::AllLogits;
using test::Prompt;
using test::Runner;
using test::Same;

// As under an emulator (tools/arm64): of settings and ways to cut a prompt one or two each time, in turns, beside the first.
bool InTurns() {
  return std::getenv("MAINARCH_TEST_IN_TURNS") != nullptr;
}

// The portable kernels, the same source at a fraction of the others' speed, take turns anywhere but with MAINARCH_TEST_FULL.
bool InTurns(const cpu::Kernels& kernels) {
  return InTurns() || (std::getenv("MAINARCH_TEST_FULL") == nullptr && std::strcmp(kernels.name, "portable") == 0);
}

TEST(chunks_threads_ranks_and_storage_change_no_bit) {
  size_t turn = 0;
  const std::vector<uint32_t> tokens = Prompt(150, 512);
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    const std::string directory = test::WriteFixture(fixture);
    CHECK(!directory.empty());
    for (backend::KvType kv :
         {backend::KvType::kBF16, backend::KvType::kFp8, backend::KvType::kFp4}) {
      // Every target with fp32 activations, with bf16 ones those that have them, and with 8 bits where
      // weights have such products.
      std::vector<std::pair<const cpu::Kernels*, backend::Activations>> modes;
      for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
        modes.emplace_back(kernels, backend::Activations::kF32);
        if (kernels->matmul_bf16 != nullptr)
          modes.emplace_back(kernels, backend::Activations::kBF16);
        if (kv == backend::KvType::kBF16 && fixture.Name().find("mxfp4") != std::string::npos)
          modes.emplace_back(kernels, backend::Activations::kInt8);
      }
      for (const auto& [kernels, activations] : modes) {
        std::vector<std::vector<float>> want;
        std::vector<test::Setting> settings = {{"cpu", kernels->name, 1, false},   {"cpu", kernels->name, 2, false},
                                               {"cpu:2", kernels->name, 2, false}, {"cpu:4", kernels->name, 1, false},
                                               {"cpu", kernels->name, 2, true},    {"cpu:4", kernels->name, 2, true}};
        std::vector<std::vector<size_t>> cuts = {{150}, {64, 64, 22}, {97, 53}, {1, 149}, {148, 1}, {7}, {1}};
        std::vector<std::vector<size_t>> other_cuts = cuts;
        if (InTurns(*kernels)) {
          ++turn;
          settings = {settings[0], settings[1 + turn % 5]};
          other_cuts = {cuts[1 + turn % 6], cuts[1 + (turn + 3) % 6]};
          cuts = {cuts[0]};
        }
        for (const test::Setting& setting : settings) {
          auto model = test::LoadOn(directory, setting);
          CHECK_OK(model);
          auto runner = Runner::Create(*model, kv, 150, activations);
          CHECK_OK(runner);
          for (const std::vector<size_t>& pieces : want.empty() ? cuts : other_cuts) {
            // The slow targets need not repeat every split.
            if (pieces[0] == 1 && pieces.size() == 1 && setting.threads == 2) continue;
            auto logits = AllLogits(runner->get(), tokens, pieces);
            CHECK_OK(logits);
            if (want.empty()) want = *logits;
            for (size_t i = 0; i < want.size(); ++i) {
              if (!Same((*logits)[i], want[i])) {
                test_context.Fail(__FILE__, __LINE__,
                                  fixture.Name() + " on " + setting.Name() + ", pieces of " +
                                      std::to_string(pieces[0]) + ": position " +
                                      std::to_string(i) + " differs");
                return;
              }
            }
          }
        }
      }
    }
  }
}

// What kernels may use beside the rows is there however few of them a context has room for.
TEST(room_for_few_rows_changes_no_bit) {
  const std::vector<uint32_t> tokens = Prompt(41, 512);
  for (const char* format : {"bf16", "fp8-block", "mxfp4"}) {
    const std::string directory = test::WriteFixture({"T1", format, 1});
    CHECK(!directory.empty());
    for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
      for (const auto activations : {backend::Activations::kF32, backend::Activations::kBF16, backend::Activations::kInt8}) {
        if (activations == backend::Activations::kBF16 && kernels->matmul_bf16 == nullptr) continue;
        auto model = test::LoadOn(directory, {"cpu:2", kernels->name, 2, false});
        CHECK_OK(model);
        std::vector<std::vector<float>> want;
        for (const size_t rows : {41, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
          auto runner = Runner::Create(*model, backend::KvType::kBF16, static_cast<uint32_t>(rows), activations);
          CHECK_OK(runner);
          auto logits = AllLogits(runner->get(), tokens, {rows});
          CHECK_OK(logits);
          if (want.empty()) want = *logits;
          for (size_t i = 0; i < want.size(); ++i) CHECK(Same((*logits)[i], want[i]));
        }
      }
    }
  }
}

TEST(fast_is_exact_where_it_could_not_win) {
  cpu::Kernels kernels = {};
  CHECK(!cpu::RoundingIsFaster(kernels, "AuthenticAMD"));
  kernels.matmul_bf16 = [](const cpu::MatmulArgs&) {};
  CHECK(cpu::RoundingIsFaster(kernels, "AuthenticAMD"));
  CHECK(!cpu::RoundingIsFaster(kernels, "GenuineIntel"));
  CHECK(!cpu::RoundingIsFaster(kernels, ""));
  CHECK(cpu::RoundingIsFaster(kernels, "Arm"));
  kernels.may_round = [] { return true; };  // as a matrix unit does
  CHECK(cpu::RoundingIsFaster(kernels, "GenuineIntel"));
  // "" is the target that this machine has chosen for it.
  std::vector<std::string> exact_targets;
  auto best = cpu::ChooseKernels("");
  CHECK_OK(best);
  if (!cpu::RoundingIsFaster(**best, cpu::CpuVendor())) exact_targets.push_back("");
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    if (kernels->matmul_bf16 == nullptr) exact_targets.push_back(kernels->name);
  }
  const std::vector<uint32_t> tokens = Prompt(40, 512);
  for (const char* format : {"bf16", "mxfp4"}) {
    const std::string directory = test::WriteFixture({"T1", format, 1});
    CHECK(!directory.empty());
    for (const std::string& target : exact_targets) {
      auto model = test::LoadOn(directory, {"cpu", target, 2, false});
      CHECK_OK(model);
      std::vector<std::vector<float>> logits[2];
      for (const bool fast : {false, true}) {
        auto runner = Runner::Create(*model, backend::KvType::kBF16, 40,
                                     fast ? backend::Activations::kBF16 : backend::Activations::kF32);
        CHECK_OK(runner);
        auto all = AllLogits(runner->get(), tokens, {37, 1, 1, 1});
        CHECK_OK(all);
        logits[fast] = *std::move(all);
      }
      CHECK_EQ(logits[0].size(), 40u);
      for (size_t i = 0; i < logits[0].size(); ++i) CHECK(Same(logits[0][i], logits[1][i]));
    }
  }
}

TEST(long_context_splits_change_no_bit) {
  // More than one attention split (512 tokens), and the two ways of walking them; also with bf16 activations and heads of
  // 64. Four ranks share T2's two KV heads.
  const std::vector<uint32_t> tokens = Prompt(1500, 512);
  for (size_t turn = 0; turn < 8; ++turn) {
    const bool fast = turn >= 4;
    const backend::KvType kv = std::array{backend::KvType::kBF16, backend::KvType::kFp8, backend::KvType::kFp4,
                                          backend::KvType::kK8V4}[turn % 4];
    const std::string directory = test::WriteFixture({fast ? "T2" : "T1", "bf16", fast ? 3u : 1u}, 2048);
    CHECK(!directory.empty());
    std::vector<std::vector<float>> want;
    size_t cut = 0;
    for (uint32_t threads : {1u, 2u, 8u}) {
      auto model = test::LoadOn(directory, {fast && threads == 1 ? "cpu:4" : "cpu", "", threads, false});
      CHECK_OK(model);
      auto runner = Runner::Create(*model, kv, 1500, fast ? backend::Activations::kBF16 : backend::Activations::kF32);
      CHECK_OK(runner);
      for (const std::vector<size_t>& pieces : std::vector<std::vector<size_t>>{
               {1500}, {511, 1, 1, 487, 24, 1, 475}, {512}, {1490, 1}}) {
        ++cut;  // in turns, each of the eleven others is taken once at least
        if (InTurns() && cut != 1 && cut != 2 + turn && cut != 2 + (turn + 5) % 11) continue;
        auto logits = AllLogits(runner->get(), tokens, pieces);
        CHECK_OK(logits);
        if (want.empty()) want = *logits;
        for (size_t i = 0; i < want.size(); ++i) CHECK(Same((*logits)[i], want[i]));
      }
    }
  }
}

TEST(batch_mix_changes_no_bit) {
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    const std::string directory = test::WriteFixture(fixture);
    CHECK(!directory.empty());
    auto model = test::LoadOn(directory, {"cpu", "", 2, false});
    CHECK_OK(model);
    test::Mix mix;
    CHECK_OK(test::RunBatchMix(*model, mix));
    mix.activations = backend::Activations::kBF16;
    CHECK_OK(test::RunBatchMix(*model, mix));
    mix.activations = backend::Activations::kInt8;
    CHECK_OK(test::RunBatchMix(*model, mix));
  }
}
