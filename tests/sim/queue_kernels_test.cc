// SPDX-License-Identifier: MIT
//
// Shipped kernels through the driver's queues on the virtual node, against their references in double, with the
// interpreter's checkers on: every sixth case, on one ISA; with MAINARCH_TEST_FULL all on both. (kernels_checked has all kernels
// without queues: what is here for the queues needs no more.)
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "sim/queue_runner.h"
#include "support/test.h"
#include "unit/kernels/case.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

sim::isa::ExecutorOptions Checked() {
  sim::isa::ExecutorOptions options;
  options.check = sim::isa::CheckOptions::All();
  return options;
}

constexpr uint32_t kDevices = 8;  // the most that a case takes
// On one node: what its waves know of all that ran before is looked at with every hand-over, so that one node for
// all takes four minutes an ISA, and this one.
constexpr size_t kCasesOfNode = 4;

void RunAll(test::Context& test_context, const std::string& isa) {
  std::string failures;
  size_t ran = 0;
  std::unique_ptr<QueueRunner> runner;
  for (const Case* test : CasesInTurn(isa, "gfx942", 12, false)) {
    if (ran++ % kCasesOfNode == 0) runner.reset();
    if (runner == nullptr) {
      auto made = QueueRunner::Create(isa, kDevices, Checked());
      CHECK_OK(made);
      runner = *std::move(made);
    }
    const Status status = RunCase(*runner, *test, Shipped);
    if (status.ok()) continue;
    absl::StrAppend(&failures, "\n  ", status.message());
    runner.reset();  // a queue that failed stays so
  }
  CHECK_EQ(failures, "");
  CHECK_GT(ran, std::getenv("MAINARCH_KERNEL_CASE") == nullptr && !kSanitized ? 40u : 0u);
}

TEST(kernels_through_queues_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(kernels_through_queues_on_gfx950) { RunAll(test_context, "gfx950"); }

// Checkers take one lock an instruction: threads would only wake each other.
TEST(gpus_that_are_checked_are_played_by_one_thread) {
  const auto threads = [](const char* text, const sim::isa::ExecutorOptions& options) -> uint32_t {
    const auto config = sim::ParseNode(text);
    if (!config.ok()) return 0;
    const auto node =
        sim::Node::Create(*config, std::make_unique<sim::isa::IsaExecutor>(options));
    return node.ok() ? (*node)->thread_count() : 0;
  };
  CHECK_EQ(threads("gfx950x4", Checked()), 1u);
  CHECK_EQ(threads("gfx950x4,threads=3", Checked()), 3u);
  CHECK_EQ(threads("gfx950x4", {}), std::min(4u, std::thread::hardware_concurrency()));
}

// The counters of each dispatch come out under the kernel's address.
TEST(dispatches_are_counted) {
  constexpr uint32_t kWorkgroups = 4, kBytes = 1 << 16;
  sim::isa::ExecutorOptions options;
  options.counts = std::make_shared<sim::isa::CountLog>();
  auto made = QueueRunner::Create("gfx950", 1, options);
  CHECK_OK(made);
  QueueRunner& runner = **made;
  const auto from = runner.Allocate(0, Home::kVram, kBytes),
             sums = runner.Allocate(0, Home::kVram, 4 * kWorkgroups);
  CHECK_OK(from);
  CHECK_OK(sums);
  kernels::StreamReadArgs args;
  args.source = {*from}, args.sums = {*sums}, args.bytes = kBytes;
  LaunchRequest request;
  auto object = Shipped("gfx950", "stream_read");
  CHECK_OK(object);
  request.object = *object;
  request.kernel = "stream_read";
  request.workgroups = kWorkgroups;
  request.kernarg = PackKernarg(args, kWorkgroups);
  options.counts->Take();  // what loading the code may have run
  for (int i = 0; i < 2; ++i) CHECK_OK(runner.Launch({&request, 1}));
  const auto log = options.counts->Take();
  CHECK_EQ(log.size(), 2u);
  for (const sim::isa::DispatchCounts& d : log) {
    CHECK_EQ(d.kernel_object, log[0].kernel_object);
    CHECK_EQ(d.counts.workgroups, kWorkgroups);
    CHECK_EQ(d.counts.waves, 4 * kWorkgroups);
    // Every byte once, in whole lines.
    CHECK_EQ(d.counts.loads.bytes, kBytes);
    CHECK_EQ(d.counts.loads.full64, kBytes / 64);
    CHECK_EQ(d.counts.loads.full128, kBytes / 128);
    CHECK_EQ(d.counts.loads.lines128, kBytes / 128);
    CHECK_EQ(d.counts.stores.bytes, 4 * kWorkgroups);
  }
  CHECK(log[0].dispatch_id != log[1].dispatch_id);
}

}  // namespace
}  // namespace mainarch::kernels_test
