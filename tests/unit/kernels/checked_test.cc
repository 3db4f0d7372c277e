// SPDX-License-Identifier: MIT
//
// Every shipped kernel under every checker: nothing is flagged, and the results are right. Each kernel and every other case on
// one ISA, with MAINARCH_TEST_FULL all on both. (sim_queue_kernels has others, through queues.)
#include "absl/strings/match.h"
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

constexpr size_t kEvery = 4;

void RunAll(test::Context& test_context, const std::string& isa) {
  std::string failures;
  for (const Case* test : CasesInTurn(isa, "gfx950", kEvery, true)) {
    const Status status = RunFresh(*test, isa, {}, Shipped, nullptr, sim::isa::CheckOptions::All());
    if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
  }
  CHECK_EQ(failures, "");
}

TEST(checkers_are_silent_on_shipped_kernels_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(checkers_are_silent_on_shipped_kernels_on_gfx950) { RunAll(test_context, "gfx950"); }

TEST(every_kernel_is_watched_on_one_isa_at_least) {
  if (kSanitized || std::getenv("MAINARCH_KERNEL_CASE") != nullptr) return;  // not all cases
  std::set<std::string> watched;
  for (const char* isa : {"gfx942", "gfx950"}) {
    for (const Case* test : CasesInTurn(isa, "gfx950", kEvery, true)) {
      for (const auto& step : test->steps) {
        for (const LaunchSpec& launch : step) watched.insert(launch.kernel);
      }
    }
  }
  std::string without;
  for (const isa::KernelImage& image : isa::KernelImages()) {
    for (const isa::KernelInfo& kernel : image.kernels) {
      // Nobody launches it: it is jumped into (unit_backend_amdgpu_resident).
      if (absl::EndsWith(kernel.name, "_return") || watched.count(std::string(kernel.name)) != 0) continue;
      absl::StrAppend(&without, "\n  ", image.isa, " ", kernel.name);
    }
  }
  CHECK_EQ(without, "");
}

}  // namespace
}  // namespace mainarch::kernels_test
