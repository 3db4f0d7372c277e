// SPDX-License-Identifier: MIT
//
// Every shipped kernel under every checker: nothing is flagged, and the results are right. Each kernel and every other case on
// one ISA, with MAINARCH_TEST_FULL all on both. (sim_queue_kernels has others, through queues.)
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

void RunAll(test::Context& test_context, const std::string& isa) {
  std::string failures;
  for (const Case* test : CasesInTurn(isa, "gfx950", 4, true)) {
    const Status status = RunFresh(*test, isa, {}, Shipped, nullptr, sim::isa::CheckOptions::All());
    if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
  }
  CHECK_EQ(failures, "");
}

TEST(checkers_are_silent_on_shipped_kernels_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(checkers_are_silent_on_shipped_kernels_on_gfx950) { RunAll(test_context, "gfx950"); }

}  // namespace
}  // namespace mainarch::kernels_test
