// SPDX-License-Identifier: MIT
//
// Queues of PM4 format: dispatches by register, buffers that packets call, fillers, the end of the
// pipe.
#include <vector>

#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

constexpr uint32_t kAnswer = 0x600d, kTo = 0x4000;

constexpr uint32_t Header(uint32_t opcode, size_t payload) {
  return 3u << 30 | static_cast<uint32_t>(payload - 1) << 16 | opcode << 8 | 2;
}

struct Bench {
  TestNode test;
  std::unique_ptr<Client> client;
  Queue queue;
  Memory code, data;
  bool ready = false;

  explicit Bench(const std::string& text) : test(MakeNode(text)) {
    if (test.node == nullptr) return;
    client = std::make_unique<Client>(test.node);
    uapi::CreateQueueArgs args;
    ready = client->Open() && PrepareAql(*client, *test.node, 0, 4096, &queue, &args) == 0;
    args.queue_type = uapi::kQueueTypeCompute;
    ready = ready && FinishQueue(*client, args, &queue) == 0 &&
            client->AllocZeroed(0, 4096, kVram, {0}, &code) == 0 &&
            client->AllocZeroed(0, 1 << 16, kGtt, {0}, &data) == 0;
    if (!ready) return;
    const auto bytes = HostExecutor::CodeOf("store");
    std::memcpy(code.as<void>(), bytes.data(), bytes.size());
    // User SGPRs: address, value.
    test.executor->Register("store", [](HostCall& call) {
      const auto& user = call.dispatch().user_data;
      const uint64_t to = uint64_t{user[1]} << 32 | user[0];
      if (call.calls() < 50) return HostCall::Again();
      if (!call.bus().Store32(to, user[2] + call.dispatch().grid[0], call.fault())) {
        return call.Fault();
      }
      return HostCall::Done();
    });
  }

  void Put(const std::vector<uint32_t>& words) {
    for (const uint32_t word : words) {
      queue.ring.as<uint32_t>()[queue.next++ % (queue.ring.size / 4)] = word;
    }
  }
  void Ring() {
    queue.write_index().store(queue.next);
    queue.doorbell->store(queue.next);
  }
  uint32_t word(uint64_t offset) { return std::atomic_ref(*data.as<uint32_t>(offset)).load(); }
  bool Consumed() {
    return Soon([&] { return queue.read_index() == queue.next % (queue.ring.size / 4); });
  }
  bool TearDown() {
    bool ok = DestroyQueue(*client, queue) == 0;
    ok = client->Free(code) == 0 && ok;
    return client->Free(data) == 0 && ok;
  }

  std::vector<uint32_t> SetRegisters(uint32_t index, const std::vector<uint32_t>& values) {
    std::vector<uint32_t> words = {Header(0x76, values.size() + 1), index};
    words.insert(words.end(), values.begin(), values.end());
    return words;
  }
  // A dispatch of 3 workgroups of 64 that stores `value` + 192, and a fence behind it.
  std::vector<uint32_t> DispatchAndFence(uint32_t value) {
    const uint64_t to = data.va + kTo, fence = data.va + kTo + 8;
    std::vector<uint32_t> words;
    const auto add = [&words](const std::vector<uint32_t>& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    add(SetRegisters(0x204, {0, 0, 0, 64, 1, 1}));
    add(SetRegisters(0x20c, {Low(code.va >> 8), High(code.va >> 8)}));
    add(SetRegisters(0x212, {0, 4 << 1}));
    add(SetRegisters(0x240, {Low(to), High(to), value, 0}));
    add({Header(0x15, 4), 3, 1, 1, 1});
    add({Header(0x49, 7), 0x514, 1u << 29, Low(fence), High(fence), kAnswer, 0, 0});
    return words;
  }
};

TEST(a_dispatch_by_registers_runs_and_the_end_of_the_pipe_waits_for_it) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  bench.Put(bench.DispatchAndFence(5));
  bench.Ring();
  CHECK(Soon([&] { return bench.word(kTo + 8) == kAnswer; }));
  CHECK_EQ(bench.word(kTo), 5u + 192u);
  CHECK(bench.Consumed());
  CHECK(bench.TearDown());
}

TEST(a_packet_calls_a_buffer) {
  Bench bench("gfx950");
  CHECK(bench.ready);
  const std::vector<uint32_t> inner = bench.DispatchAndFence(7);
  std::memcpy(bench.data.as<void>(0x8000), inner.data(), inner.size() * 4);
  const uint64_t va = bench.data.va + 0x8000;
  const uint32_t size = static_cast<uint32_t>(inner.size());
  bench.Put({Header(0x3f, 3), Low(va), High(va), size | 1u << 23});
  bench.Ring();
  CHECK(Soon([&] { return bench.word(kTo + 8) == kAnswer; }));
  CHECK_EQ(bench.word(kTo), 7u + 192u);
  CHECK(bench.TearDown());
}

// A buffer that chains to itself for ever must leave the node its turns.
TEST(an_endless_chain_stops_nobody) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  const uint64_t va = bench.data.va + 0x8000;
  const uint32_t chain[] = {Header(0x3f, 3), Low(va), High(va), 4u | 1u << 20 | 1u << 23};
  std::memcpy(bench.data.as<void>(0x8000), chain, sizeof(chain));
  bench.Put({Header(0x3f, 3), Low(va), High(va), 4u | 1u << 23});
  bench.Put(bench.DispatchAndFence(1));
  bench.Ring();
  CHECK(bench.Consumed());
  CHECK(StaysFalse([&] { return bench.word(kTo + 8) == kAnswer; }));
  CHECK(bench.TearDown());
}

// The read pointer is that of the fetch: a client may wait for it, and then for what it has to do
// itself before the packets can go on.
TEST(the_read_pointer_does_not_wait_for_a_packet_that_waits) {
  Bench bench("gfx950");
  CHECK(bench.ready);
  const uint64_t flag = bench.data.va + kTo + 16;
  bench.Put({Header(0x3c, 6), 0x13, Low(flag), High(flag), 1, 0xffffffff, 4});
  bench.Put(bench.DispatchAndFence(3));
  bench.Ring();
  CHECK(bench.Consumed());
  CHECK(StaysFalse([&] { return bench.word(kTo + 8) == kAnswer; }));
  std::atomic_ref(*bench.data.as<uint32_t>(kTo + 16)).store(1);
  CHECK(Soon([&] { return bench.word(kTo + 8) == kAnswer; }));
  CHECK(bench.TearDown());
}

// Fillers of one dword, with and without the flags of a compute packet; the read pointer wraps.
TEST(fillers_and_a_ring_that_wraps) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  const uint64_t dwords = bench.queue.ring.size / 4;
  for (uint32_t filler : {0xffff1000u, 0xffff1002u, 0x80000000u}) {
    for (uint64_t i = 0; i < dwords - 100; ++i) bench.Put({filler});
    bench.Ring();
    CHECK(bench.Consumed());
  }
  CHECK_LE(dwords, bench.queue.next);
  bench.Put(bench.DispatchAndFence(9));
  bench.Ring();
  CHECK(Soon([&] { return bench.word(kTo + 8) == kAnswer; }));
  CHECK(bench.Consumed());
  CHECK(bench.TearDown());
}

TEST(what_is_no_dispatch_hangs_the_queue_and_says_why) {
  const struct {
    uint32_t index, value;
    const char* said;
  } kCases[] = {{0x204, 1, "COMPUTE_START"}, {0x207, 2048, "a workgroup of 2048"}, {0x20c, 1, ""}};
  for (const auto& c : kCases) {
    Bench bench("gfx942");
    CHECK(bench.ready);
    std::vector<uint32_t> words = bench.DispatchAndFence(1);
    const auto packet = bench.SetRegisters(c.index, {c.value});
    // Before DISPATCH_DIRECT: 5 dwords and the 8 of the fence.
    words.insert(words.end() - 13, packet.begin(), packet.end());
    bench.Put(words);
    bench.Ring();
    CHECK(StaysFalse([&] { return bench.word(kTo + 8) == kAnswer; }));
    CHECK(LogHas(*bench.test.node, *c.said != 0 ? c.said : "page fault"));
    CHECK(bench.TearDown());
  }
}

}  // namespace
}  // namespace mainarch::sim::test
