// SPDX-License-Identifier: MIT
//
// Every kernel on the interpreter against its reference in double, for both ISAs (under a sanitizer, which sees the
// interpreter alone, every other case on one of them, unless with MAINARCH_TEST_FULL), and the kernels that synchronise
// under many schedules; and every kernel of every ISA has a case. (kernels_checked runs the same cases under the checkers.)
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

void RunAll(test::Context& test_context, const std::string& isa) {
  std::string failures;
  size_t ran = 0;
  for (const Case* test : kSanitized ? CasesInTurn(isa, "gfx942", 4, false) : CasesOf(isa)) {
    ++ran;
    const Status status = RunFresh(*test, isa, {}, Shipped, nullptr);
    if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
  }
  CHECK_EQ(failures, "");
  CHECK_GT(ran, std::getenv("MAINARCH_KERNEL_CASE") == nullptr ? 40u : 0u);
}

TEST(kernels_agree_with_double_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(kernels_agree_with_double_on_gfx950) { RunAll(test_context, "gfx950"); }

TEST(synchronising_kernels_pass_under_many_schedules) {
  std::vector<Case> cases = LinkCases();
  for (Case& test : ResidentCases()) cases.push_back(std::move(test));
  for (Case& test : DecoderReduceCases()) cases.push_back(std::move(test));
  for (Case& test : SampleCases()) {
    if (test.name.find("4 ranks") != std::string::npos) cases.push_back(std::move(test));
  }
  for (Case& test : DecoderHereCases()) {
    if (test.name.find("fp8_32") != std::string::npos) cases.push_back(std::move(test));
  }
  for (const Case& test : cases) {
    for (uint64_t seed = 2; seed < 10; ++seed) {
      ExecutorOptions options;
      options.seed = seed;
      options.slice = 1 + seed * seed * 13;
      CHECK_OK(RunFresh(test, seed % 2 ? "gfx942" : "gfx950", options, Shipped, nullptr));
    }
  }
}

TEST(every_kernel_has_a_case) {
  std::set<std::pair<std::string, std::string>> tested;  // ISA, kernel
  for (const Case& test : MadeCases()) {
    for (const auto& step : test.steps) {
      for (const auto& launch : step) {
        if (launch.aids) continue;
        for (const std::string isa : {"gfx942", "gfx950"}) {
          if (test.isas.empty() || std::count(test.isas.begin(), test.isas.end(), isa)) {
            tested.insert({isa, launch.kernel});
          }
        }
      }
    }
    CHECK(!test.bound.empty());
    CHECK(!test.expectations.empty());
  }
  for (const isa::KernelImage& image : isa::KernelImages()) {
    for (const isa::KernelInfo& kernel : image.kernels) {
      // Nobody launches it: it is jumped into (unit_backend_amdgpu_resident).
      if (kernel.name == "resident_return" || kernel.name == "resident_large_return") continue;
      if (!tested.count({std::string(image.isa), std::string(kernel.name)})) {
        CHECK_EQ(std::string(kernel.name), "a kernel with a case for " + std::string(image.isa));
      }
    }
  }
}

}  // namespace
}  // namespace mainarch::kernels_test
