// SPDX-License-Identifier: MIT
//
// AQL queues of the virtual node, from a client that does everything right.
#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

struct Bench {
  TestNode test;
  std::unique_ptr<Client> client;
  Queue queue;
  Memory kernels, data;
  bool ready = false;

  explicit Bench(const std::string& text, uint64_t ring_bytes = 4096,
                 const std::function<void(NodeConfig&)>& adjust = nullptr)
      : test(MakeNode(text, adjust)) {
    if (test.node == nullptr) return;
    client = std::make_unique<Client>(test.node);
    ready = client->Open() && MakeAql(*client, *test.node, 0, ring_bytes, &queue) == 0 &&
            client->AllocZeroed(0, 1 << 16, kVram, {0}, &kernels) == 0 &&
            client->AllocZeroed(0, 1 << 16, kGtt, {0}, &data) == 0;
    if (!ready) return;
    const auto image = HostExecutor::ImageOf("store");
    std::memcpy(kernels.as<void>(), image.data(), image.size());
    // kernarg: u64 address, u64 value
    test.executor->Register("store", [](HostCall& call) {
      uint64_t to = 0, value = 0;
      if (!call.Argument(0, &to) || !call.Argument(8, &value)) return call.Fault();
      if (!call.bus().Store64(to, value, call.fault())) return call.Fault();
      return HostCall::Done();
    });
  }
  Signal* signal(size_t i) { return data.as<Signal>(i * 64); }
  uint64_t kernarg(size_t i, uint64_t to, uint64_t value) {
    uint64_t* args = data.as<uint64_t>(0x8000 + i * 16);
    args[0] = to;
    args[1] = value;
    return reinterpret_cast<uint64_t>(args);
  }
  bool TearDown() {
    bool ok = DestroyQueue(*client, queue) == 0;
    ok = client->Free(kernels) == 0 && ok;
    return client->Free(data) == 0 && ok;
  }
};

TEST(a_dispatch_runs_and_signals_with_timestamps) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  Signal* signal = new (bench.signal(0)) Signal;
  signal->value = 1;
  uint64_t* target = bench.data.as<uint64_t>(0x4000);
  Submit(bench.queue,
         DispatchPacket(bench.kernels, bench.kernarg(0, reinterpret_cast<uint64_t>(target), 77),
                        signal));
  CHECK(Soon([&] { return signal->value == 0; }));
  CHECK_EQ(*target, 77u);
  CHECK_LE(signal->start, signal->end);
  CHECK_NE(signal->start, 0u);
  CHECK(Soon([&] { return bench.queue.read_index() == 1; }));
  CHECK(bench.TearDown());
}

TEST(a_ring_of_64_packets_wraps_a_thousand_times) {
  for (const auto invalidate : {NodeConfig::Invalidate::kAlways, NodeConfig::Invalidate::kNever}) {
    Bench bench("gfx950,seed=3", 4096, [&](NodeConfig& config) {
      config.invalidate_slots = invalidate;
      config.early_fetch = invalidate == NodeConfig::Invalidate::kAlways;
    });
    CHECK(bench.ready);
    Signal* signal = new (bench.signal(0)) Signal;
    constexpr uint64_t kPackets = 64 * 1000;
    signal->value = kPackets;
    std::atomic<uint64_t> runs{0};
    bench.test.executor->Register("store", [&](HostCall&) { return ++runs, HostCall::Done(); });
    uint64_t sent = 0;
    while (sent < kPackets) {
      if (!Soon([&] { return sent - bench.queue.read_index() < bench.queue.packets(); })) break;
      Submit(bench.queue, DispatchPacket(bench.kernels, 0, signal, sent % 7 == 0));
      ++sent;
    }
    CHECK_EQ(sent, kPackets);
    CHECK(Soon([&] { return signal->value == 0; }));
    CHECK_EQ(runs.load(), kPackets);
    CHECK(bench.TearDown());
    CHECK(bench.client->sys.ledger().buffers == 0);
  }
}

TEST(the_barrier_bit_waits_for_everything_before_it) {
  Bench bench("gfx942,seed=11");
  CHECK(bench.ready);
  std::atomic<int> order{0};
  std::atomic<int> slow_at{0}, last_at{0};
  bench.test.executor->Register("slow", [&](HostCall& call) {
    if (call.calls() < 200) return HostCall::Again();
    slow_at = ++order;
    return HostCall::Done();
  });
  bench.test.executor->Register("last", [&](HostCall&) {
    last_at = ++order;
    return HostCall::Done();
  });
  const auto slow = HostExecutor::ImageOf("slow"), last = HostExecutor::ImageOf("last");
  std::memcpy(bench.kernels.as<void>(0x1000), slow.data(), slow.size());
  std::memcpy(bench.kernels.as<void>(0x2000), last.data(), last.size());
  Memory slow_kernel = bench.kernels, last_kernel = bench.kernels;
  slow_kernel.va += 0x1000;
  last_kernel.va += 0x2000;
  for (bool barrier : {true, false}) {
    order = 0;
    Signal* signal = new (bench.signal(0)) Signal;
    signal->value = 2;
    Submit(bench.queue, DispatchPacket(slow_kernel, 0, signal));
    Submit(bench.queue, DispatchPacket(last_kernel, 0, signal, barrier));
    CHECK(Soon([&] { return signal->value == 0; }));
    CHECK_EQ(slow_at.load(), barrier ? 1 : 2);
    CHECK_EQ(last_at.load(), barrier ? 2 : 1);
  }
  CHECK(bench.TearDown());
}

TEST(barrier_packets_wait_for_all_or_any_signal) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  Signal* a = new (bench.signal(0)) Signal;
  Signal* b = new (bench.signal(1)) Signal;
  Signal* any = new (bench.signal(2)) Signal;
  Signal* all = new (bench.signal(3)) Signal;
  a->value = b->value = any->value = all->value = 1;
  Submit(bench.queue, BarrierPacket({a, b}, any, true));
  Submit(bench.queue, BarrierPacket({a, b}, all, false));
  CHECK(StaysFalse([&] { return any->value == 0; }));
  b->value = 0;
  CHECK(Soon([&] { return any->value == 0; }));
  CHECK(StaysFalse([&] { return all->value == 0; }));
  a->value = 0;
  CHECK(Soon([&] { return all->value == 0; }));
  CHECK(bench.TearDown());
}

TEST(a_completion_signal_with_a_mailbox_wakes_the_event) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  Memory page;
  CHECK_EQ(bench.client->Alloc(0, uapi::kEventPageSize, kGtt, {0}, &page), 0);
  uapi::CreateEventArgs event = {};
  event.event_page_offset = page.handle;
  event.auto_reset = 1;
  CHECK_EQ(bench.client->Call(uapi::kCreateEvent, &event), 0);
  CHECK_EQ(event.event_id, 1u);
  Signal* signal = new (bench.signal(0)) Signal;
  signal->value = 1;
  signal->mailbox = page.va + 8 * event.event_slot_index;
  signal->event_id = event.event_id;
  uapi::EventData data = {};
  data.event_id = event.event_id;
  uapi::WaitEventsArgs wait = {};
  wait.events_ptr = reinterpret_cast<uint64_t>(&data);
  wait.num_events = 1;
  wait.timeout = 50;
  CHECK_EQ(bench.client->Call(uapi::kWaitEvents, &wait), 0);
  CHECK_EQ(wait.wait_result, uapi::kWaitTimeout);
  Submit(bench.queue, BarrierPacket({}, signal));
  wait.timeout = 20000;
  CHECK_EQ(bench.client->Call(uapi::kWaitEvents, &wait), 0);
  CHECK_EQ(wait.wait_result, uapi::kWaitComplete);
  CHECK_EQ(signal->value.load(), 0);
  CHECK_EQ(*page.as<uint64_t>(8), ~uint64_t{0});  // acknowledged
  uapi::FreeMemoryArgs free_page = {page.handle};
  CHECK_EQ(bench.client->Call(uapi::kFreeMemory, &free_page), -EPERM);
  CHECK(bench.TearDown());
}

TEST(a_persistent_kernel_shares_the_gpu_and_dies_with_its_queue) {
  Bench bench("gfx942,threads=1");
  CHECK(bench.ready);
  bench.test.executor->Register("forever", [](HostCall&) { return HostCall::Waiting(); });
  const auto forever = HostExecutor::ImageOf("forever");
  std::memcpy(bench.kernels.as<void>(0x1000), forever.data(), forever.size());
  Memory kernel = bench.kernels;
  kernel.va += 0x1000;
  Queue other;
  CHECK_EQ(MakeAql(*bench.client, *bench.test.node, 0, 4096, &other), 0);
  Signal* never = new (bench.signal(0)) Signal;
  never->value = 1;
  Submit(other, DispatchPacket(kernel, 0, never));
  for (int i = 0; i < 20; ++i) {
    Signal* signal = new (bench.signal(1)) Signal;
    signal->value = 1;
    Submit(bench.queue,
           DispatchPacket(bench.kernels, bench.kernarg(0, bench.data.va + 0x4000, 1), signal));
    CHECK(Soon([&] { return signal->value == 0; }));
  }
  CHECK_EQ(never->value.load(), 1);
  CHECK_EQ(DestroyQueue(*bench.client, other), 0);
  CHECK(bench.TearDown());
}

struct BadPacket {
  const char* name;
  int64_t code;
  void (*change)(AqlPacket&);
};

TEST(a_bad_packet_is_told_to_the_inactive_signal) {
  const BadPacket bad[] = {
      {"no dimensions", 0x2, [](AqlPacket& p) { p.setup = 0; }},
      {"an empty grid", 0x2, [](AqlPacket& p) { p.grid[0] = 0; }},
      {"too much LDS", 0x4, [](AqlPacket& p) { p.group_bytes = (64 << 10) + 1; }},
      {"no kernel", 0x8, [](AqlPacket& p) { p.kernel_object = 0; }},
      {"an agent dispatch", 0x20, [](AqlPacket& p) { p.header = 0x1404; }},
      {"a reserved bit", 0x20, [](AqlPacket& p) { p.header |= 1 << 14; }},
      {"an acquire scope of 3", 0x20, [](AqlPacket& p) { p.header |= 3 << 9; }},
      {"a release scope of 3", 0x20, [](AqlPacket& p) { p.header |= 3 << 11; }},
      {"a barrier's release scope of 3", 0x20, [](AqlPacket& p) { p.header = 0x1d03; }},
      {"a workgroup of 2048", 0x40,
       [](AqlPacket& p) {
         p.setup = 2;
         p.workgroup[0] = 1024;
         p.workgroup[1] = 2;
       }},
      {"an unknown vendor packet", 0x100,
       [](AqlPacket& p) {
         p.header = 0x1400;
         p.setup = 9;
       }},
  };
  for (const BadPacket& one : bad) {
    Bench bench("gfx942");
    CHECK(bench.ready);
    Signal* inactive = new (bench.signal(0)) Signal;
    Signal* signal = new (bench.signal(1)) Signal;
    signal->value = 1;
    *bench.queue.pointers.as<uint64_t>(0xc0) = reinterpret_cast<uint64_t>(inactive);
    AqlPacket packet =
        DispatchPacket(bench.kernels, bench.kernarg(0, bench.data.va + 0x4000, 1), signal);
    one.change(packet);
    Submit(bench.queue, packet);
    if (!Soon([&] { return inactive->value == one.code; })) {
      test_context.Fail(__FILE__, __LINE__, std::string(one.name) + " was not told");
      return;
    }
    CHECK_EQ(signal->value.load(), 1);
    CHECK(bench.TearDown());
  }
}

TEST(scratch_is_asked_for_and_the_packet_tried_again) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  const auto image = HostExecutor::ImageOf("store", 0, 64);
  std::memcpy(bench.kernels.as<void>(), image.data(), image.size());
  Signal* inactive = new (bench.signal(0)) Signal;
  Signal* signal = new (bench.signal(1)) Signal;
  signal->value = 1;
  *bench.queue.pointers.as<uint64_t>(0xc0) = reinterpret_cast<uint64_t>(inactive);
  AqlPacket packet =
      DispatchPacket(bench.kernels, bench.kernarg(0, bench.data.va + 0x4000, 9), signal);
  packet.private_bytes = 64;
  Submit(bench.queue, packet);
  CHECK(Soon([&] { return inactive->value == 1; }));
  CHECK_EQ(signal->value.load(), 1);
  // AMD's runtime looks for the packet in the ring: it is still one to be executed.
  CHECK_EQ(*bench.queue.ring.as<uint8_t>(0), 2u);
  *bench.queue.pointers.as<uint32_t>(0xb0) = 64;
  inactive->value = 0;
  CHECK(Soon([&] { return signal->value == 0; }));
  CHECK_EQ(*bench.data.as<uint64_t>(0x4000), 9u);
  CHECK(bench.TearDown());
}

TEST(a_pm4_buffer_invalidates_instructions_and_stale_code_runs_without_it) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  uint64_t* target = bench.data.as<uint64_t>(0x4000);
  bench.test.executor->Register("other", [&](HostCall& call) {
    call.bus().Store64(reinterpret_cast<uint64_t>(target), 1234, call.fault());
    return HostCall::Done();
  });
  const auto run = [&] {
    Signal* signal = new (bench.signal(0)) Signal;
    signal->value = 1;
    Submit(bench.queue,
           DispatchPacket(bench.kernels, bench.kernarg(0, reinterpret_cast<uint64_t>(target), 5),
                          signal));
    return Soon([&] { return signal->value == 0; });
  };
  CHECK(run());
  CHECK_EQ(*target, 5u);
  const auto image = HostExecutor::ImageOf("other");
  std::memcpy(bench.kernels.as<void>(), image.data(), image.size());
  CHECK(run());
  CHECK_EQ(*target, 5u);  // the old instructions
  uint32_t* ib = bench.data.as<uint32_t>(0x6000);
  const uint32_t acquire[8] = {0xc0055800, 0x28840000, 0xffffffff, 0xff, 0, 0, 0, 0xffff1000};
  std::memcpy(ib, acquire, sizeof(acquire));
  Signal* signal = new (bench.signal(1)) Signal;
  signal->value = 1;
  AqlPacket packet;
  uint32_t words[16] = {};
  words[0] = 0x1500 | 1 << 16;
  words[1] = 0xc0023f00;
  words[2] = Low(reinterpret_cast<uint64_t>(ib));
  words[3] = High(reinterpret_cast<uint64_t>(ib));
  words[4] = 8 | 1 << 23;
  words[5] = 10;
  std::memcpy(&packet, words, sizeof(packet));
  packet.completion = reinterpret_cast<uint64_t>(signal);
  Submit(bench.queue, packet);
  CHECK(Soon([&] { return signal->value == 0; }));
  CHECK(run());
  CHECK_EQ(*target, 1234u);
  CHECK(bench.TearDown());
}

}  // namespace
}  // namespace mainarch::sim::test
