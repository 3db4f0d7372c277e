// SPDX-License-Identifier: MIT
//
// Copy engines of the virtual node.
#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

// Two GPUs, one queue on the first, memory of both seen by the first.
struct Bench {
  TestNode test;
  std::unique_ptr<Client> client;
  Queue queue;
  Memory local, remote, host;
  bool ready = false;

  explicit Bench(const std::string& text, uint64_t bytes = 4 << 20, uint64_t ring_bytes = 4096,
                 int engine = 0)
      : test(MakeNode(text)) {
    if (test.node == nullptr) return;
    client = std::make_unique<Client>(test.node);
    const uint32_t other = test.node->config().gpus - 1;
    ready = client->Open() && MakeSdma(*client, 0, ring_bytes, engine, &queue) == 0 &&
            client->AllocZeroed(0, bytes, kVram, {0}, &local) == 0 &&
            client->AllocZeroed(other, bytes, kVram, {0, other}, &remote) == 0 &&
            client->AllocZeroed(0, bytes, kGtt, {0}, &host) == 0;
  }
  std::atomic<uint32_t>& fence() { return *host.as<std::atomic<uint32_t>>(0); }
  bool Finish(uint32_t value) {
    WriteSdma(queue, SdmaFence(host.va, value));
    RingSdma(queue);
    return Soon([&] { return fence() == value; });
  }
  bool TearDown() {
    bool ok = DestroyQueue(*client, queue) == 0;
    for (Memory* memory : {&local, &remote, &host}) ok = client->Free(*memory) == 0 && ok;
    const Ledger ledger = client->sys.ledger();
    return ok && ledger.buffers == 0 && ledger.gpu_mappings == 0 && ledger.vram_bytes == 0 &&
           ledger.queues == 0 && ledger.client_mappings == 0;
  }
};

// A box of 3 x 4 x 2 elements of 4 bytes, between surfaces of different pitch; what lies around it
// stays.
TEST(a_window_of_one_surface_into_another) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  constexpr uint32_t kLog = 2, kX = 3, kY = 4, kZ = 2;
  constexpr uint32_t kFromPitch = 16, kFromSlice = 16 * 8, kToPitch = 10, kToSlice = 10 * 9;
  uint32_t* from = bench.local.as<uint32_t>();
  uint32_t* to = bench.remote.as<uint32_t>();
  for (uint32_t i = 0; i < 1024; ++i) from[i] = 1000 + i, to[i] = 7;
  const uint64_t a = bench.local.va, b = bench.remote.va;
  WriteSdma(bench.queue,
            {1 | 4 << 8 | kLog << 29, Low(a), High(a), 2 | 1 << 16, 1 | (kFromPitch - 1) << 13,
             kFromSlice - 1, Low(b), High(b), 1 | 3 << 16, 2 | (kToPitch - 1) << 13, kToSlice - 1,
             (kX - 1) | (kY - 1) << 16, kZ - 1});
  CHECK(bench.Finish(1));
  for (uint32_t i = 0; i < 1024; ++i) {
    const int z = static_cast<int>(i / kToSlice) - 2;
    const int y = static_cast<int>(i % kToSlice / kToPitch) - 3;
    const int x = static_cast<int>(i % kToSlice % kToPitch) - 1;
    const bool inside = x >= 0 && x < int{kX} && y >= 0 && y < int{kY} && z >= 0 && z < int{kZ};
    const int at = (x + 2) + (y + 1) * int{kFromPitch} + (z + 1) * int{kFromSlice};
    CHECK_EQ(to[i], inside ? 1000u + static_cast<uint32_t>(at) : 7u);
  }
  CHECK(bench.TearDown());
}

TEST(copies_of_any_alignment_arrive_before_their_fence) {
  Bench bench("gfx950x2,seed=5");
  CHECK(bench.ready);
  uint8_t* source = bench.local.as<uint8_t>();
  for (uint64_t i = 0; i < bench.local.size; ++i) source[i] = static_cast<uint8_t>(i * 7 + i / 251);
  uint32_t value = 0;
  struct Part {
    uint64_t from, to, bytes;
  };
  for (const Part part : {Part{0, 0, 1}, Part{3, 5, 4097}, Part{4096, 8192, 1 << 20},
                          Part{1, 2, (4 << 20) - 16}, Part{100, 0, 65536}}) {
    std::memset(bench.remote.as<void>(), 0, bench.remote.size);
    WriteSdma(bench.queue,
              SdmaCopy(bench.remote.va + part.to, bench.local.va + part.from, part.bytes));
    CHECK(bench.Finish(++value));
    CHECK_EQ(std::memcmp(bench.remote.as<void>(part.to), source + part.from, part.bytes), 0);
    CHECK_EQ(bench.remote.as<uint8_t>()[part.to + part.bytes], 0);
  }
  CHECK(bench.TearDown());
}

// AMD's conformance suite waits for the read pointer, not for a fence.
TEST(the_read_pointer_does_not_pass_a_copy_that_runs) {
  Bench bench("gfx950x2,seed=6");
  CHECK(bench.ready);
  const uint64_t last = bench.local.size - 1;
  for (uint8_t round = 1; round <= 20; ++round) {
    *bench.local.as<uint8_t>(last) = round;
    WriteSdma(bench.queue, SdmaCopy(bench.remote.va, bench.local.va, bench.local.size));
    RingSdma(bench.queue);
    CHECK(Soon([&] { return bench.queue.read_index() == bench.queue.next; }));
    CHECK_EQ(*bench.remote.as<uint8_t>(last), round);
  }
  CHECK(bench.TearDown());
}

TEST(a_count_beyond_22_bits_copies_the_rest_of_it_only) {
  Bench bench("gfx942x2", 8 << 20);
  CHECK(bench.ready);
  std::memset(bench.local.as<void>(), 0x5a, bench.local.size);
  WriteSdma(bench.queue, SdmaCopy(bench.remote.va, bench.local.va, (4 << 20) + 512));
  CHECK(bench.Finish(1));
  CHECK_EQ(bench.remote.as<uint8_t>()[511], 0x5a);
  CHECK_EQ(bench.remote.as<uint8_t>()[512], 0);
  CHECK(LogHas(*bench.test.node, "cut to its low bits"));
  CHECK(bench.TearDown());
}

TEST(a_small_ring_wraps_with_padding) {
  Bench bench("gfx942x2,seed=9");
  CHECK(bench.ready);
  for (uint32_t i = 1; i <= 2000; ++i) {
    *bench.local.as<uint32_t>(4 * (i % 1000)) = i;
    WriteSdma(bench.queue,
              SdmaCopy(bench.remote.va + 4 * (i % 1000), bench.local.va + 4 * (i % 1000), 4));
    CHECK(bench.Finish(i));
    CHECK_EQ(*bench.remote.as<uint32_t>(4 * (i % 1000)), i);
  }
  CHECK(bench.TearDown());
}

TEST(a_write_may_overtake_a_copy_and_a_fence_may_not) {
  Bench bench("gfx942x2,threads=1,seed=4");
  CHECK(bench.ready);
  CHECK_OK(bench.test.node->script().Add("slow=0-1:3000"));
  const uint64_t bytes = bench.local.size - 4096;
  std::memset(bench.local.as<void>(), 1, bench.local.size);
  std::atomic_ref<uint8_t> last(*bench.remote.as<uint8_t>(bytes - 1));
  std::atomic<uint32_t>& flag = *bench.host.as<std::atomic<uint32_t>>(64);
  WriteSdma(bench.queue, SdmaCopy(bench.remote.va, bench.local.va, bytes));
  WriteSdma(bench.queue, {2, Low(bench.host.va + 64), High(bench.host.va + 64), 0, 9});
  WriteSdma(bench.queue, SdmaFence(bench.host.va, 9));
  RingSdma(bench.queue);
  CHECK(Soon([&] { return flag == 9; }));
  CHECK_EQ(last.load(), 0);
  CHECK(Soon([&] { return bench.fence() == 9; }));
  CHECK_EQ(last.load(), 1);
  CHECK(bench.TearDown());
}

TEST(fills_polls_atomics_timestamps_conditions_and_indirect_buffers) {
  Bench bench("gfx942x2");
  CHECK(bench.ready);
  const uint64_t at = bench.host.va;
  uint64_t* words = bench.host.as<uint64_t>();
  // Fills: 256 dwords, then 3 bytes.
  WriteSdma(bench.queue, {0x8000000b, Low(at + 0x1000), High(at + 0x1000), 0xdeadbeef, 255 * 4});
  WriteSdma(bench.queue, {0x0000000b, Low(at + 0x1000), High(at + 0x1000), 0x11, 2});
  // 16 dwords again, counted in bytes less one.
  WriteSdma(bench.queue, {0x8000000b, Low(at + 0x1800), High(at + 0x1800), 0xdeadbeef, 16 * 4 - 1});
  CHECK(bench.Finish(1));
  CHECK_EQ(*bench.host.as<uint32_t>(0x183c), 0xdeadbeefu);
  CHECK_EQ(*bench.host.as<uint32_t>(0x1840), 0u);
  CHECK_EQ(*bench.host.as<uint32_t>(0x1000), 0xde111111);
  CHECK_EQ(*bench.host.as<uint32_t>(0x13fc), 0xdeadbeefu);
  CHECK_EQ(*bench.host.as<uint32_t>(0x1400), 0u);
  // A poll that holds back the atomic behind it.
  words[2] = 100;
  words[3] = 0;
  WriteSdma(bench.queue, {0xd0000008, Low(at + 24), High(at + 24), 7, 0xffffffff, 0xfff0000});
  WriteSdma(bench.queue,
            {0x5e00000a, Low(at + 16), High(at + 16), 0xffffffff, 0xffffffff, 0, 0, 0});
  RingSdma(bench.queue);
  CHECK(StaysFalse([&] { return std::atomic_ref<uint64_t>(words[2]).load() != 100; }));
  std::atomic_ref<uint64_t>(words[3]).store(8);
  CHECK(Soon([&] { return std::atomic_ref<uint64_t>(words[2]).load() == 99; }));
  // Timestamps grow.
  WriteSdma(bench.queue, {0x20d, Low(at + 32), High(at + 32)});
  WriteSdma(bench.queue, {0x20d, Low(at + 40), High(at + 40)});
  CHECK(bench.Finish(2));
  CHECK_NE(words[4], 0u);
  CHECK_LE(words[4], words[5]);
  // COND_EXE jumps over a fence; the HDP flush idiom passes.
  WriteSdma(bench.queue, {9, Low(at + 24), High(at + 24), 12345, 4});
  WriteSdma(bench.queue, SdmaFence(at + 48, 1));
  WriteSdma(bench.queue, {8, 0, 0x80000000, 0, 0, 0});
  CHECK(bench.Finish(3));
  CHECK_EQ(words[6], 0u);
  // An indirect buffer, padded so that its packet ends on eight dwords.
  const std::vector<uint32_t> fence = SdmaFence(at + 48, 77);
  std::memcpy(bench.host.as<void>(0x2000), fence.data(), 16);
  while ((bench.queue.next / 4 + 6) % 8 != 0) WriteSdma(bench.queue, {0});
  WriteSdma(bench.queue, {4, Low(at + 0x2000), High(at + 0x2000), 4, 0, 0});
  CHECK(bench.Finish(4));
  CHECK_EQ(words[6], 77u);
  CHECK(bench.TearDown());
}

TEST(all_engines_of_every_gpu_copy_at_the_same_time) {
  TestNode test = MakeNode("gfx950x8,seed=21");
  CHECK(test.node != nullptr);
  Client client(test.node);
  CHECK(client.Open());
  constexpr uint64_t kBytes = 256 << 10;
  struct Lane {
    Queue queue;
    Memory from, to, host;
  };
  std::vector<Lane> lanes(8 * 16);
  for (uint32_t gpu = 0; gpu < 8; ++gpu) {
    for (uint32_t engine = 0; engine < 16; ++engine) {
      Lane& lane = lanes[gpu * 16 + engine];
      const uint32_t peer = (gpu + 1 + engine % 7) % 8;
      CHECK_EQ(MakeSdma(client, gpu, 4096, static_cast<int>(engine), &lane.queue), 0);
      CHECK_EQ(client.AllocZeroed(gpu, kBytes, kVram, {gpu}, &lane.from), 0);
      CHECK_EQ(client.AllocZeroed(peer, kBytes, kVram, {gpu}, &lane.to), 0);
      CHECK_EQ(client.AllocZeroed(gpu, 4096, kGtt, {gpu}, &lane.host), 0);
      std::memset(lane.from.as<void>(), static_cast<int>(gpu * 16 + engine), kBytes);
    }
  }
  for (Lane& lane : lanes) {
    WriteSdma(lane.queue, SdmaCopy(lane.to.va, lane.from.va, kBytes));
    WriteSdma(lane.queue, SdmaFence(lane.host.va, 1));
    RingSdma(lane.queue);
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    CHECK(Soon([&] { return *lanes[i].host.as<std::atomic<uint32_t>>() == 1; }));
    CHECK_EQ(std::memcmp(lanes[i].to.as<void>(), lanes[i].from.as<void>(), kBytes), 0);
    CHECK_EQ(lanes[i].to.as<uint8_t>()[kBytes - 1], i);
  }
  for (Lane& lane : lanes) {
    CHECK_EQ(DestroyQueue(client, lane.queue), 0);
    for (Memory* memory : {&lane.from, &lane.to, &lane.host}) CHECK_EQ(client.Free(*memory), 0);
  }
  for (uint32_t gpu = 0; gpu < 8; ++gpu) CHECK_EQ(test.node->vram_used(gpu), 0u);
}

TEST(slots_are_given_as_the_driver_gives_them_and_run_out) {
  TestNode test = MakeNode("gfx942");
  Client client(test.node);
  CHECK(client.Open());
  std::vector<Queue> queues(17);
  for (int i = 0; i < 16; ++i) {
    CHECK_EQ(MakeSdma(client, 0, 4096, -1, &queues[static_cast<size_t>(i)]), 0);
    // Consecutive creates alternate between the engines 0 and 1.
    const uint64_t index = (queues[static_cast<size_t>(i)].doorbell_offset & 0x1fff) / 8;
    const uint64_t slot = static_cast<uint64_t>(i) / 2;
    CHECK_EQ(index, 0x100 + 10 * (static_cast<uint64_t>(i) % 2) + slot % 2 * 512 + slot / 2);
  }
  CHECK_EQ(MakeSdma(client, 0, 4096, -1, &queues[16]), -ENOMEM);
  CHECK_EQ(MakeSdma(client, 0, 4096, 1, &queues[16]), -ENOMEM);
  CHECK_EQ(MakeSdma(client, 0, 4096, 2, &queues[16]), 0);
  CHECK_EQ(MakeSdma(client, 0, 4096, 16, &queues[16]), -EINVAL);
}

TEST(what_the_engine_does_not_know_resets_the_gpu) {
  Bench bench("gfx942x2");
  CHECK(bench.ready);
  uapi::CreateEventArgs event = {};
  event.event_type = uapi::kEventHwException;
  event.auto_reset = 1;
  CHECK_EQ(bench.client->Call(uapi::kCreateEvent, &event), 0);
  WriteSdma(bench.queue, {17, 0, 0, 0, 0});  // GCR of later engines
  RingSdma(bench.queue);
  uapi::EventData data = {};
  data.event_id = event.event_id;
  uapi::WaitEventsArgs wait = {reinterpret_cast<uint64_t>(&data), 1, 0, 20000, 0};
  CHECK_EQ(bench.client->Call(uapi::kWaitEvents, &wait), 0);
  CHECK_EQ(wait.wait_result, uapi::kWaitComplete);
  CHECK_EQ(data.hw_exception_data.gpu_id, bench.client->id(0));
  CHECK_EQ(data.hw_exception_data.memory_lost, 1u);
  CHECK(bench.TearDown());
}

TEST(wrong_pointers_hang_the_engine) {
  struct Wrong {
    const char* name;
    void (*act)(Bench&);
    const char* log;
  };
  const Wrong wrongs[] = {
      {"the doorbell is ahead of the write pointer",
       [](Bench& b) {
         WriteSdma(b.queue, SdmaFence(b.host.va, 1));
         b.queue.doorbell->store(16);
       },
       "write pointer in memory"},
      {"the doorbell counts dwords",
       [](Bench& b) {
         WriteSdma(b.queue, SdmaFence(b.host.va, 1));
         b.queue.write_index().store(16);
         b.queue.doorbell->store(15);
       },
       "whole dwords"},
      {"a 32-bit doorbell",
       [](Bench& b) {
         WriteSdma(b.queue, SdmaFence(b.host.va, 1));
         b.queue.write_index().store(16);
         reinterpret_cast<std::atomic<uint32_t>*>(b.queue.doorbell)->store(16);
       },
       "64-bit store"},
      {"a packet over the ring's end",
       [](Bench& b) {
         for (int i = 0; i < 1022; ++i) WriteSdma(b.queue, {0});
         RingSdma(b.queue);
         Soon([&] { return b.queue.read_index() == 4088; });
         const std::vector<uint32_t> fence = SdmaFence(b.host.va, 1);
         std::memcpy(b.queue.ring.as<void>(4088), fence.data(), 8);
         std::memcpy(b.queue.ring.as<void>(0), fence.data() + 2, 8);
         b.queue.next += 16;
         RingSdma(b.queue);
       },
       "over the ring's end"},
  };
  for (const Wrong& wrong : wrongs) {
    Bench bench("gfx942x2");
    CHECK(bench.ready);
    wrong.act(bench);
    if (!Soon([&] { return LogHas(*bench.test.node, wrong.log); })) {
      test_context.Fail(__FILE__, __LINE__, std::string(wrong.name) + " passed unnoticed");
      return;
    }
    CHECK_EQ(bench.fence().load(), 0u);
    CHECK(bench.TearDown());
  }
}

}  // namespace
}  // namespace mainarch::sim::test
