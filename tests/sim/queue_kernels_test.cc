// SPDX-License-Identifier: MIT
//
// Every shipped kernel through the driver's queues on the virtual node, both ISAs, against its
// reference in double, with the interpreter's checkers on; the resident kernel with a host that
// feeds its mailbox while it runs.
#include <algorithm>
#include <chrono>
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
  for (const Case& test : CasesOf(isa)) {
    if (ran++ % kCasesOfNode == 0) runner.reset();
    if (runner == nullptr) {
      auto made = QueueRunner::Create(isa, kDevices, Checked());
      CHECK_OK(made);
      runner = *std::move(made);
    }
    const Status status = RunCase(*runner, test, Shipped);
    if (status.ok()) continue;
    absl::StrAppend(&failures, "\n  ", status.message());
    runner.reset();  // a queue that failed stays so
  }
  CHECK_EQ(failures, "");
  CHECK_GT(ran, std::getenv("MAINARCH_KERNEL_CASE") == nullptr && !kSanitized ? 40u : 0u);
}

TEST(kernels_through_queues_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(kernels_through_queues_on_gfx950) { RunAll(test_context, "gfx950"); }

// The host's side of the resident kernel's protocol (kernels/args.h).
class Mailbox {
 public:
  static constexpr uint32_t kSlots = 4;
  Mailbox(uint8_t* ring, const uint8_t* done) : ring_(ring), done_(done) {}

  // Posts when the slot that it needs is free.
  template <class Args>
  bool Post(kernels::Opcode opcode, const Args& args) {
    if (sequence_ > kSlots && !Finished(sequence_ - kSlots)) return false;
    uint8_t* slot = ring_ + sequence_ % kSlots * sizeof(kernels::Command);
    kernels::Command command;
    std::memcpy(command.words, &args, sizeof args);
    command.opcode = static_cast<uint32_t>(opcode);
    std::memcpy(slot, &command, offsetof(kernels::Command, sequence));
    __atomic_store_n(reinterpret_cast<uint32_t*>(slot + offsetof(kernels::Command, sequence)),
                     sequence_++, __ATOMIC_RELEASE);
    return Finished(sequence_ - 1);
  }

 private:
  bool Finished(uint32_t sequence) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (std::chrono::steady_clock::now() < end) {
      const uint32_t done =
          __atomic_load_n(reinterpret_cast<const uint32_t*>(done_), __ATOMIC_ACQUIRE);
      if (static_cast<int32_t>(done - sequence) >= 0) return true;
      std::this_thread::yield();
    }
    return false;
  }

  uint8_t* ring_;
  const uint8_t* done_;
  uint32_t sequence_ = 1;
};

void HostFeedsMailbox(test::Context& test_context, const std::string& isa) {
  constexpr uint32_t kWorkgroups = 5, kBytes = 20000, kRounds = 6;
  auto made = QueueRunner::Create(isa, 1, Checked());
  CHECK_OK(made);
  QueueRunner& runner = **made;
  const auto allocate = [&](Home home, size_t bytes) {
    auto address = runner.Allocate(0, home, bytes);
    return address.ok() ? *address : 0;
  };
  const uint64_t ring = allocate(Home::kHost, Mailbox::kSlots * sizeof(kernels::Command)),
                 done = allocate(Home::kHost, 4), relay = allocate(Home::kUncached, 128),
                 flags = allocate(Home::kUncached, 8), from = allocate(Home::kVram, kBytes),
                 to = allocate(Home::kVram, kBytes), sums = allocate(Home::kVram, 4 * kWorkgroups);
  CHECK(ring != 0 && done != 0 && relay != 0 && flags != 0 && from != 0 && to != 0 && sums != 0);
  // Memory comes with anything in it.
  const std::vector<uint8_t> zeros(Mailbox::kSlots * sizeof(kernels::Command));
  for (const auto& [address, bytes] :
       {std::pair<uint64_t, size_t>{ring, zeros.size()}, {done, 4}, {relay, 128}, {flags, 8}}) {
    CHECK_OK(runner.Write(address, absl::MakeConstSpan(zeros).first(bytes)));
  }
  kernels::ResidentArgs args;
  args.mailbox = {ring}, args.done = {done}, args.relay = {relay}, args.relay_flag = {flags};
  args.arrivals = {flags + 4};
  args.slots = Mailbox::kSlots;
  LaunchRequest request;
  auto object = Shipped(isa, "resident");
  CHECK_OK(object);
  request.object = *object;
  request.kernel = "resident";
  request.workgroups = kWorkgroups;
  request.kernarg = PackKernarg(args, kWorkgroups);
  const auto started = runner.Start(request);
  CHECK_OK(started);

  Mailbox mailbox(runner.Host(ring), runner.Host(done));
  for (uint32_t round = 1; round <= kRounds; ++round) {
    kernels::FillArgs fill;
    fill.destination = {from};
    fill.bytes = kBytes;
    for (uint32_t i = 0; i < 4; ++i) fill.pattern[i] = round * 1000 + i;
    CHECK(mailbox.Post(kernels::Opcode::kFill, fill));
    kernels::CopyArgs copy;
    copy.source = {from}, copy.destination = {to}, copy.bytes = kBytes;
    CHECK(mailbox.Post(kernels::Opcode::kCopy, copy));
    kernels::StreamReadArgs read;
    read.source = {to}, read.sums = {sums}, read.bytes = kBytes;
    CHECK(mailbox.Post(kernels::Opcode::kStreamRead, read));
    CHECK(!runner.Done(*started));  // it stays
    // What a command wrote is for the kernel's later commands; the host sees it after the end.
  }
  CHECK(mailbox.Post(kernels::Opcode::kStop, kernels::StreamReadArgs{}));
  CHECK_OK(runner.Wait(*started));
  uint32_t sum = 0, want = 0;
  for (uint32_t w = 0; w < kWorkgroups; ++w) {
    uint32_t part;
    CHECK_OK(runner.Read(sums + 4 * w, {reinterpret_cast<uint8_t*>(&part), 4}));
    sum += part;
  }
  for (uint32_t i = 0; i < kBytes / 4; ++i) want += kRounds * 1000 + i % 4;
  CHECK_EQ(sum, want);
  std::vector<uint8_t> copied(kBytes), expected(kBytes);
  for (uint32_t i = 0; i < kBytes / 4; ++i) {
    const uint32_t word = kRounds * 1000 + i % 4;
    std::memcpy(&expected[4 * i], &word, 4);
  }
  CHECK_OK(runner.Read(to, absl::MakeSpan(copied)));
  CHECK(copied == expected);
}

TEST(a_host_feeds_the_resident_kernels_mailbox) {
  HostFeedsMailbox(test_context, "gfx942");
  HostFeedsMailbox(test_context, "gfx950");
}

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
