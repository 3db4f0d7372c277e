// SPDX-License-Identifier: MIT
//
// What goes wrong on purpose: page faults, scripted trouble, and the client mistakes that hardware
// answers with silence. Each mistake must show, and the test says as what.
#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

struct Bench {
  TestNode test;
  std::unique_ptr<Client> client;
  Queue queue;
  Memory kernels, data;
  uint32_t memory_event = 0, hw_event = 0;
  bool ready = false;

  explicit Bench(const std::string& text, const std::string& script = "",
                 const std::function<void(NodeConfig&)>& adjust = nullptr)
      : test(MakeNode(text, adjust)) {
    if (test.node == nullptr || !test.node->script().Add(script).ok()) return;
    client = std::make_unique<Client>(test.node);
    ready = client->Open() && MakeAql(*client, *test.node, 0, 4096, &queue) == 0 &&
            client->AllocZeroed(0, 1 << 16, kVram, {0}, &kernels) == 0 &&
            client->AllocZeroed(0, 1 << 16, kGtt, {0}, &data) == 0 &&
            MakeEvent(uapi::kEventMemory, &memory_event) &&
            MakeEvent(uapi::kEventHwException, &hw_event);
    if (!ready) return;
    const auto image = HostExecutor::ImageOf("store");
    std::memcpy(kernels.as<void>(), image.data(), image.size());
    test.executor->Register("store", [](HostCall& call) {
      uint64_t to = 0;
      if (!call.Argument(0, &to)) return call.Fault();
      if (!call.bus().Store64(to, 42, call.fault())) return call.Fault();
      return HostCall::Done();
    });
  }
  bool MakeEvent(uint32_t type, uint32_t* id) {
    uapi::CreateEventArgs args = {};
    args.event_type = type;
    args.auto_reset = 1;
    if (client->Call(uapi::kCreateEvent, &args) != 0) return false;
    *id = args.event_id;
    return true;
  }
  Signal* signal(size_t i) {
    Signal* signal = new (data.as<Signal>(i * 64)) Signal;
    signal->value = 1;
    return signal;
  }
  uint64_t argument(uint64_t to) {
    *data.as<uint64_t>(0x8000) = to;
    return data.va + 0x8000;
  }
  bool Wait(uint32_t event, uapi::EventData* out, uint32_t ms = 20000) {
    *out = {};
    out->event_id = event;
    uapi::WaitEventsArgs args = {reinterpret_cast<uint64_t>(out), 1, 0, ms, 0};
    return client->Call(uapi::kWaitEvents, &args) == 0 && args.wait_result == uapi::kWaitComplete;
  }
  // A store to `to`; the signal it should complete.
  Signal* Store(uint64_t to, size_t i = 0) {
    Signal* done = signal(i);
    Submit(queue, DispatchPacket(kernels, argument(to), done));
    return done;
  }
};

TEST(a_kernel_that_leaves_its_mappings_raises_the_memory_event) {
  struct Case {
    const char* name;
    bool not_present, read_only;
  };
  for (const Case one : {Case{"unmapped", true, false}, Case{"read only", false, true},
                         Case{"another GPU's", true, false}}) {
    Bench bench("gfx942x2");
    CHECK(bench.ready);
    uint64_t to = 0x7d0000000000;
    Memory memory;
    if (one.read_only) {
      CHECK_EQ(bench.client->Alloc(0, 8192, kVram & ~uapi::kAllocWritable, {0}, &memory), 0);
      to = memory.va + 4096 + 8;
    } else if (one.name[0] == 'a') {
      CHECK_EQ(bench.client->Alloc(0, 8192, kVram, {1}, &memory), 0);
      to = memory.va;
    }
    Signal* never = bench.Store(to);
    uapi::EventData data;
    CHECK(bench.Wait(bench.memory_event, &data));
    const uapi::MemoryExceptionData& fault = data.memory_exception_data;
    CHECK_EQ(fault.va, to & ~uint64_t{4095});
    CHECK_EQ(fault.gpu_id, bench.client->id(0));
    CHECK_EQ(fault.failure.not_present, one.not_present ? 1u : 0u);
    CHECK_EQ(fault.failure.read_only, one.read_only ? 1u : 0u);
    CHECK_EQ(fault.failure.imprecise, 0u);
    CHECK_EQ(fault.error_type, uapi::kMemoryErrorNone);
    // The queue is evicted for good, and so is every other of this process on this GPU.
    Submit(bench.queue, BarrierPacket({}, bench.signal(1)));
    CHECK(StaysFalse([&] { return bench.data.as<Signal>(64)->value == 0; }));
    CHECK_EQ(never->value.load(), 1);
    CHECK_EQ(DestroyQueue(*bench.client, bench.queue), 0);
  }
}

TEST(code_that_is_not_executable_faults_as_such) {
  Bench bench("gfx950");
  CHECK(bench.ready);
  Memory plain;
  CHECK_EQ(bench.client->Alloc(0, 4096, kVram & ~uapi::kAllocExecutable, {0}, &plain), 0);
  const auto image = HostExecutor::ImageOf("store");
  std::memcpy(plain.as<void>(), image.data(), image.size());
  Submit(bench.queue, DispatchPacket(plain, bench.argument(0), bench.signal(0)));
  uapi::EventData data;
  CHECK(bench.Wait(bench.memory_event, &data));
  CHECK_EQ(data.memory_exception_data.failure.no_execute, 1u);
  CHECK_EQ(data.memory_exception_data.va, plain.va);
}

TEST(scripted_trouble_arrives_at_its_packet) {
  struct Case {
    const char* script;
    bool hw, memory;
    uint32_t cause;
  };
  for (const Case one :
       {Case{"reset=0@3", true, false, uapi::kResetCauseHang},
        Case{"ecc=0@3", true, true, uapi::kResetCauseEcc}, Case{"fault=0@3", false, true, 0}}) {
    Bench bench("gfx942", one.script);
    CHECK(bench.ready);
    for (size_t i = 0; i < 2; ++i) {
      Signal* done = bench.Store(bench.data.va + 0x4000, i);
      CHECK(Soon([&] { return done->value == 0; }));
    }
    bench.Store(bench.data.va + 0x4000, 2);
    uapi::EventData data;
    if (one.hw) {
      CHECK(bench.Wait(bench.hw_event, &data));
      CHECK_EQ(data.hw_exception_data.reset_cause, one.cause);
      CHECK_EQ(data.hw_exception_data.memory_lost, 1u);
      uapi::UpdateQueueArgs update = {bench.queue.ring.va, bench.queue.id, 4096, 100, 7};
      CHECK_EQ(bench.client->Call(uapi::kUpdateQueue, &update), -EACCES);
    }
    if (one.memory) {
      CHECK(bench.Wait(bench.memory_event, &data));
      CHECK_EQ(data.memory_exception_data.error_type,
               one.hw ? uapi::kMemoryErrorSramEcc : uapi::kMemoryErrorNone);
    }
    CHECK_EQ(DestroyQueue(*bench.client, bench.queue), 0);
    // The GPU works again for a new queue.
    bench.queue = Queue();
    CHECK_EQ(MakeAql(*bench.client, *bench.test.node, 0, 4096, &bench.queue), 0);
    Signal* done = bench.Store(bench.data.va + 0x4000, 3);
    CHECK(Soon([&] { return done->value == 0; }));
  }
}

TEST(a_hung_packet_holds_its_queue_and_destroying_it_resets) {
  Bench bench("gfx942", "hang=0@2");
  CHECK(bench.ready);
  Signal* first = bench.Store(bench.data.va + 0x4000, 0);
  CHECK(Soon([&] { return first->value == 0; }));
  Signal* second = bench.Store(bench.data.va + 0x4000, 1);
  Signal* third = bench.Store(bench.data.va + 0x4000, 2);
  CHECK(StaysFalse([&] { return second->value == 0 || third->value == 0; }));
  CHECK_EQ(DestroyQueue(*bench.client, bench.queue), -ETIME);
  uapi::EventData data;
  CHECK(bench.Wait(bench.hw_event, &data));
  CHECK_EQ(bench.client->sys.ledger().queues, 0u);
}

TEST(a_lost_signal_is_lost_and_the_next_is_not) {
  Bench bench("gfx942", "lose=0@1");
  CHECK(bench.ready);
  Signal* first = bench.Store(bench.data.va + 0x4000, 0);
  CHECK(Soon([&] { return bench.queue.read_index() == 1; }));
  Signal* second = bench.Store(bench.data.va + 0x4000, 1);
  CHECK(Soon([&] { return second->value == 0; }));
  CHECK_EQ(first->value.load(), 1);
}

TEST(a_gpu_that_is_gone_answers_enodev_and_its_memory_can_be_given_back) {
  Bench bench("gfx942x2", "gone=0@1");
  CHECK(bench.ready);
  bench.Store(bench.data.va + 0x4000);
  CHECK(Soon([&] { return bench.test.node->gone(0); }));
  Memory memory;
  CHECK_EQ(bench.client->Alloc(0, 4096, kVram, {0}, &memory), -ENODEV);
  CHECK_EQ(bench.client->Alloc(1, 4096, kVram, {1}, &memory), 0);
  CHECK_EQ(bench.client->sys.Open("/dev/dri/renderD128", O_RDWR), -ENODEV);
  CHECK_EQ(DestroyQueue(*bench.client, bench.queue), 0);
  CHECK_EQ(bench.client->Free(bench.kernels), 0);
  CHECK_EQ(bench.test.node->vram_used(0), 0u);
}

TEST(the_nth_call_fails_as_the_script_says) {
  TestNode test = MakeNode("gfx942");
  CHECK_OK(test.node->script().Add("ioctl=ALLOC_MEMORY@2:ENOMEM; open@3:EACCES;mmap@1:EIO"));
  Client client(test.node);
  CHECK(client.Open());
  Memory memory;
  CHECK_EQ(client.Alloc(0, 4096, kVram, {0}, &memory), -EIO);
  CHECK_EQ(client.Alloc(0, 4096, kVram, {0}, &memory), 0);
  CHECK_EQ(client.Alloc(0, 4096, kVram, {0}, &memory), -ENOMEM);
  CHECK_EQ(client.Alloc(0, 4096, kVram, {0}, &memory), 0);
  CHECK_EQ(client.sys.Open("/dev/kfd", O_RDWR), -EACCES);
  for (const char* bad : {"ioctl=NO_SUCH@1:EIO", "ioctl=*@1", "ioctl=*@0:EIO", "ioctl=*@1:EWHAT",
                          "hang=x@1", "hang=0", "explode=0@1", "slow=0-1", "page=0@zz", "open"}) {
    const Status status = test.node->script().Add(bad);
    CHECK(!status.ok());
    CHECK(status.message().find(bad) != absl::string_view::npos);
  }
}

// Mistakes. In each, the client of WritePacket and Submit does one thing wrong.

TEST(mistake_doorbell_counts_packets_instead_of_naming_the_last) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  Signal* done = bench.signal(0);
  WritePacket(bench.queue,
              DispatchPacket(bench.kernels, bench.argument(bench.data.va + 0x4000), done));
  bench.queue.doorbell->store(bench.queue.next);
  CHECK(StaysFalse([&] { return done->value == 0; }));
  CHECK(LogHas(*bench.test.node, "takes the index of the last packet"));
}

TEST(mistake_doorbell_before_the_packet) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  bench.queue.write_index().store(1);
  bench.queue.doorbell->store(0);
  CHECK(Soon([&] { return LogHas(*bench.test.node, "its header is INVALID"); }));
}

TEST(mistake_half_a_doorbell) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  Signal* done = bench.signal(0);
  WritePacket(bench.queue, BarrierPacket({}, done));
  reinterpret_cast<std::atomic<uint32_t>*>(bench.queue.doorbell)->store(0);
  CHECK(Soon([&] { return LogHas(*bench.test.node, "64-bit store"); }));
  CHECK(StaysFalse([&] { return done->value == 0; }));
}

TEST(mistake_header_published_before_the_body) {
  // The packet processor knows of the slot through the write index and may read it at any time.
  Bench bench("gfx942,seed=2");
  CHECK(bench.ready);
  Signal* inactive = bench.signal(1);
  inactive->value = 0;
  *bench.queue.pointers.as<uint64_t>(0xc0) = reinterpret_cast<uint64_t>(inactive);
  Signal* done = bench.signal(0);
  const AqlPacket packet =
      DispatchPacket(bench.kernels, bench.argument(bench.data.va + 0x4000), done);
  bench.queue.write_index().store(1);
  bench.queue.ring.as<std::atomic<uint32_t>>()->store(0x00011402);
  // The body that follows comes too late: an empty packet has been taken.
  CHECK(Soon([&] { return inactive->value == 0x2; }));
  std::memcpy(bench.queue.ring.as<void>(4), reinterpret_cast<const uint8_t*>(&packet) + 4, 60);
  bench.queue.doorbell->store(0);
  CHECK(StaysFalse([&] { return done->value == 0; }));
}

TEST(mistake_more_packets_than_the_ring_holds) {
  Bench bench("gfx942", "", [](NodeConfig& config) { config.early_fetch = false; });
  CHECK(bench.ready);
  Signal* wait = bench.signal(0);
  for (uint64_t i = 0; i < bench.queue.packets() + 1; ++i) {
    WritePacket(bench.queue, BarrierPacket({wait}, nullptr));
  }
  bench.queue.doorbell->store(bench.queue.next - 1);
  CHECK(Soon([&] { return LogHas(*bench.test.node, "the ring holds 64"); }));
}

TEST(mistake_no_barrier_bit_lets_the_reader_overtake_the_writer) {
  // The second kernel reads what the first will write, later. Over some seeds it reads too early.
  int stale = 0;
  for (int seed = 1; seed <= 5; ++seed) {
    Bench bench("gfx942,seed=" + std::to_string(seed));
    CHECK(bench.ready);
    std::atomic<uint64_t> seen{0};
    std::atomic<uint64_t> value{0};
    bench.test.executor->Register("writer", [&](HostCall& call) {
      if (call.calls() < 20) return HostCall::Again();
      value = 1;
      return HostCall::Done();
    });
    bench.test.executor->Register("reader", [&](HostCall&) {
      seen = value.load() + 1;
      return HostCall::Done();
    });
    const auto writer = HostExecutor::ImageOf("writer"), reader = HostExecutor::ImageOf("reader");
    std::memcpy(bench.kernels.as<void>(0x1000), writer.data(), writer.size());
    std::memcpy(bench.kernels.as<void>(0x2000), reader.data(), reader.size());
    Memory first = bench.kernels, second = bench.kernels;
    first.va += 0x1000;
    second.va += 0x2000;
    Signal* done = bench.signal(0);
    done->value = 2;
    WritePacket(bench.queue, DispatchPacket(first, 0, done));
    WritePacket(bench.queue, DispatchPacket(second, 0, done, false));
    bench.queue.doorbell->store(1);
    CHECK(Soon([&] { return done->value == 0; }));
    if (seen == 1) ++stale;
  }
  CHECK_GT(stale, 0);
}

TEST(mistake_lds_below_the_kernels_own) {
  Bench bench("gfx950");
  CHECK(bench.ready);
  const auto image = HostExecutor::ImageOf("store", 4096);
  std::memcpy(bench.kernels.as<void>(), image.data(), image.size());
  Signal* inactive = bench.signal(1);
  inactive->value = 0;
  *bench.queue.pointers.as<uint64_t>(0xc0) = reinterpret_cast<uint64_t>(inactive);
  bench.Store(bench.data.va + 0x4000);
  CHECK(Soon([&] { return inactive->value == 0x4; }));
}

TEST(mistake_scratch_without_a_way_to_ask_hangs) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  const auto image = HostExecutor::ImageOf("store", 0, 256);
  std::memcpy(bench.kernels.as<void>(), image.data(), image.size());
  AqlPacket packet = DispatchPacket(bench.kernels, bench.argument(0), bench.signal(0));
  packet.private_bytes = 256;
  Submit(bench.queue, packet);
  CHECK(Soon([&] { return LogHas(*bench.test.node, "no inactive signal"); }));
}

TEST(an_enabled_runtime_is_told_of_bad_packets_and_halted_waves) {
  for (const bool bad_packet : {true, false}) {
    Bench bench("gfx942");
    CHECK(bench.ready);
    CHECK_EQ(DestroyQueue(*bench.client, bench.queue), 0);
    uapi::RuntimeEnableArgs enable = {0, uapi::kRuntimeEnableMode, 0};
    CHECK_EQ(bench.client->Call(uapi::kRuntimeEnable, &enable), 0);
    uapi::SetTrapHandlerArgs trap = {bench.kernels.va, bench.data.va, bench.client->id(0), 0};
    CHECK_EQ(bench.client->Call(uapi::kSetTrapHandler, &trap), 0);
    bench.queue = Queue();
    CHECK_EQ(MakeAql(*bench.client, *bench.test.node, 0, 4096, &bench.queue), 0);
    uint32_t event = 0;
    CHECK(bench.MakeEvent(uapi::kEventSignal, &event));
    uapi::CwsrHeader* header = bench.queue.save_area.as<uapi::CwsrHeader>();
    header->err_payload_addr = bench.data.va + 0x5000;
    header->err_event_id = event;
    AqlPacket packet = DispatchPacket(bench.kernels, bench.argument(bench.data.va), nullptr);
    if (bad_packet) packet.group_bytes = 1 << 20;
    bench.test.executor->Register("store", [](HostCall&) {
      Progress progress;
      progress.state = Progress::State::kException;
      progress.exception = WaveException::kIllegalInstruction;
      progress.detail = "pc 0";
      return progress;
    });
    Submit(bench.queue, packet);
    uapi::EventData data;
    CHECK(bench.Wait(event, &data));
    CHECK_EQ(*bench.data.as<uint64_t>(0x5000), uint64_t{1} << (bad_packet ? 16 : 3));
  }
}

TEST(mistake_mailbox_without_an_event_wakes_nobody) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  uint32_t id = 0;
  CHECK(bench.MakeEvent(uapi::kEventSignal, &id));
  Signal* done = bench.signal(0);
  done->event_id = id;  // but no mailbox
  Submit(bench.queue, BarrierPacket({}, done));
  CHECK(Soon([&] { return done->value == 0; }));
  uapi::EventData data;
  CHECK(!bench.Wait(id, &data, 100));
}

}  // namespace
}  // namespace mainarch::sim::test
