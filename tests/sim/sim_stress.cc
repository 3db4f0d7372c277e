// SPDX-License-Identifier: MIT
//
// Random work on a whole node: two processes, several GPUs, compute queues that depend on each
// other through signals and barrier packets, copies that carry data between GPUs. Whatever order
// the machine picks, a packet never starts before what it waits for, everything ends, every byte
// arrives, and nothing is left behind. A failure prints the seed of the node.
#include <memory>

#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

constexpr uint32_t kGpus = 3;
constexpr uint32_t kQueuesPerGpu = 2;
constexpr int kTasks = 400;

// kernarg of the kernel: the VAs of up to two signals that must be 0 by now, and of a counter.
struct TaskArgs {
  uint64_t needs[2];
  uint64_t counter;
  uint64_t violations;
};

Progress RunTask(HostCall& call) {
  TaskArgs args;
  if (!call.Argument(0, &args)) return call.Fault();
  for (uint64_t need : args.needs) {
    uint64_t value = 0;
    if (need == 0) continue;
    if (!call.bus().Load64(need + 8, &value, call.fault())) return call.Fault();
    if (value != 0 && !call.bus().Add64(args.violations, 1, call.fault())) return call.Fault();
  }
  // Some take their time, so that others overtake them.
  if (call.calls() < call.dispatch().seed % 13) return HostCall::Again();
  if (!call.bus().Add64(args.counter, 1, call.fault())) return call.Fault();
  return HostCall::Done();
}

struct Worker {
  std::unique_ptr<Client> client;
  std::vector<Queue> queues;  // [gpu * kQueuesPerGpu + i]
  Memory kernel, signals, arguments, counters;
  Signal* signal(int task) const { return signals.as<Signal>(static_cast<uint64_t>(task) * 64); }

  bool Open(const std::shared_ptr<Node>& node) {
    client = std::make_unique<Client>(node);
    if (!client->Open()) return false;
    std::vector<uint32_t> all;
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) all.push_back(gpu);
    bool ok =
        client->AllocZeroed(0, 4096, kVram, all, &kernel) == 0 &&
        client->AllocZeroed(0, PageUp(kTasks * 64), kGtt, all, &signals) == 0 &&
        client->AllocZeroed(0, PageUp(kTasks * sizeof(TaskArgs)), kGtt, all, &arguments) == 0 &&
        client->AllocZeroed(0, 4096, kGtt, all, &counters) == 0;
    queues.resize(kGpus * kQueuesPerGpu);
    for (uint32_t i = 0; i < queues.size(); ++i) {
      ok = ok && MakeAql(*client, *node, i / kQueuesPerGpu, 4096, &queues[i]) == 0;
    }
    const auto image = HostExecutor::ImageOf("task");
    if (ok) std::memcpy(kernel.as<void>(), image.data(), image.size());
    return ok;
  }

  // Makes room for two packets.
  bool Room(Queue& queue) {
    return Soon([&] { return queue.next + 2 - queue.read_index() <= queue.packets(); });
  }

  bool SubmitTask(int task, Rng& rng) {
    Signal* done = new (signal(task)) Signal;
    done->value = 1;
    TaskArgs* args = arguments.as<TaskArgs>(static_cast<uint64_t>(task) * sizeof(TaskArgs));
    *args = {{0, 0}, counters.va, counters.va + 8};
    std::vector<const Signal*> deps;
    for (uint32_t i = 0; i < 2 && task > 0; ++i) {
      if (rng.OneIn(3)) continue;
      const int other =
          task - 1 - static_cast<int>(rng.Below(static_cast<uint32_t>(std::min(task, 20))));
      deps.push_back(signal(other));
      args->needs[i] = reinterpret_cast<uint64_t>(signal(other));
    }
    Queue& queue = queues[rng.Below(static_cast<uint32_t>(queues.size()))];
    if (!Room(queue)) return false;
    // The barrier packet holds the later packets of its queue until the signals are 0.
    if (!deps.empty()) WritePacket(queue, BarrierPacket(deps, nullptr));
    WritePacket(queue,
                DispatchPacket(kernel, reinterpret_cast<uint64_t>(args), done, rng.OneIn(8)));
    queue.doorbell->store(queue.next - 1);
    return true;
  }

  bool Close() {
    bool ok = true;
    for (Queue& queue : queues) ok = DestroyQueue(*client, queue) == 0 && ok;
    for (Memory* memory : {&kernel, &signals, &arguments, &counters}) {
      ok = client->Free(*memory) == 0 && ok;
    }
    for (int fd : client->render) client->sys.Close(fd);
    client->sys.Close(client->kfd);
    client->render.clear();
    client->kfd = -1;
    return ok && client->sys.ledger().empty();
  }
};

TEST(dependent_packets_of_many_queues_keep_their_order) {
  for (int seed = 1; seed <= 12; ++seed) {
    std::fprintf(stderr, "# node seed %d\n", seed);
    TestNode test = MakeNode("gfx950x3,seed=" + std::to_string(seed), [&](NodeConfig& config) {
      config.invalidate_slots = NodeConfig::Invalidate::kRandom;
      // A slot whose header stays valid may be run again if it is fetched early.
      config.early_fetch = false;
      config.threads = seed % 2 == 0 ? 1 : 0;
    });
    CHECK(test.node != nullptr);
    test.executor->Register("task", RunTask);
    std::vector<Worker> workers(2);
    for (Worker& worker : workers) CHECK(worker.Open(test.node));
    std::vector<Rng> dice = {Rng(static_cast<uint64_t>(seed)),
                             Rng(static_cast<uint64_t>(seed) + 99)};
    for (int task = 0; task < kTasks; ++task) {
      for (size_t i = 0; i < workers.size(); ++i) CHECK(workers[i].SubmitTask(task, dice[i]));
    }
    for (Worker& worker : workers) {
      const auto& counter = *worker.counters.as<std::atomic<uint64_t>>();
      if (!Soon([&] { return counter == kTasks; })) {
        test_context.Fail(
            __FILE__, __LINE__,
            "tasks done: " + std::to_string(counter.load()) + "; " + Join(test.node->log()));
        return;
      }
      CHECK_EQ(*worker.counters.as<uint64_t>(8), 0u);
      for (int task = 0; task < kTasks; ++task) {
        CHECK(Soon([&] { return worker.signal(task)->value == 0; }));
      }
      CHECK(worker.Close());
    }
    CHECK(test.node->log().empty());
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) CHECK_EQ(test.node->vram_used(gpu), 0u);
  }
}

TEST(data_goes_round_all_gpus_through_copies_and_polls) {
  // A token of 64 KiB is copied from GPU to GPU; each engine polls for the arrival of the last hop,
  // passes it on and rings the next by a fence.
  for (int seed = 1; seed <= 4; ++seed) {
    TestNode test = MakeNode("gfx942x8,seed=" + std::to_string(seed));
    CHECK(test.node != nullptr);
    Client client(test.node);
    CHECK(client.Open());
    std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
    constexpr uint64_t kBytes = 64 << 10;
    constexpr uint32_t kRounds = 20;
    Memory flags;
    CHECK_EQ(client.AllocZeroed(0, 4096, kGtt, all, &flags), 0);
    std::vector<Memory> slots(8);
    std::vector<Queue> queues(8);
    for (uint32_t gpu = 0; gpu < 8; ++gpu) {
      CHECK_EQ(client.AllocZeroed(gpu, kBytes, kVram, all, &slots[gpu]), 0);
      const uint32_t mask = RecommendedSdmaMask(test.node->config(), gpu, (gpu + 1) % 8);
      CHECK_EQ(MakeSdma(client, gpu, 1 << 16, __builtin_ctz(mask), &queues[gpu]), 0);
    }
    for (uint64_t i = 0; i < kBytes; ++i) slots[0].as<uint8_t>()[i] = static_cast<uint8_t>(i * 31);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      for (uint32_t gpu = 0; gpu < 8; ++gpu) {
        // Flag g holds the round in which GPU g got the token; GPU 0 starts with round 1.
        const uint64_t mine = flags.va + 64 * gpu, next = flags.va + 64 * ((gpu + 1) % 8);
        const uint32_t arrival = gpu == 0 ? round - 1 : round;
        WriteSdma(queues[gpu], {0xb0000008, Low(mine), High(mine), arrival, 0xffffffff, 0xfff0001});
        WriteSdma(queues[gpu], SdmaCopy(slots[(gpu + 1) % 8].va, slots[gpu].va, kBytes));
        WriteSdma(queues[gpu], SdmaFence(next, round));
      }
    }
    for (uint32_t gpu = 8; gpu-- > 0;) RingSdma(queues[gpu]);
    CHECK(Soon([&] { return *flags.as<std::atomic<uint32_t>>(0) == kRounds; }));
    for (uint32_t gpu = 0; gpu < 8; ++gpu) {
      for (uint64_t i = 0; i < kBytes; i += 997) {
        CHECK_EQ(slots[gpu].as<uint8_t>()[i], static_cast<uint8_t>(i * 31));
      }
      CHECK_EQ(DestroyQueue(client, queues[gpu]), 0);
      CHECK_EQ(client.Free(slots[gpu]), 0);
    }
    CHECK_EQ(client.Free(flags), 0);
    CHECK(test.node->log().empty());
  }
}

TEST(queues_come_and_go_while_others_work) {
  TestNode test = MakeNode("gfx950x2,seed=31");
  CHECK(test.node != nullptr);
  test.executor->Register("task", RunTask);
  Client client(test.node);
  CHECK(client.Open());
  Memory kernel, data;
  CHECK_EQ(client.AllocZeroed(0, 4096, kVram, {0, 1}, &kernel), 0);
  CHECK_EQ(client.AllocZeroed(0, 1 << 16, kGtt, {0, 1}, &data), 0);
  const auto image = HostExecutor::ImageOf("task");
  std::memcpy(kernel.as<void>(), image.data(), image.size());
  *data.as<TaskArgs>(0x1000) = {{0, 0}, data.va, data.va + 8};
  Queue steady;
  CHECK_EQ(MakeAql(client, *test.node, 0, 4096, &steady), 0);
  uint64_t expected = 0;
  for (int i = 0; i < 60; ++i) {
    Queue passing;
    CHECK_EQ(MakeAql(client, *test.node, static_cast<uint32_t>(i % 2), 4096, &passing), 0);
    Signal* done = new (data.as<Signal>(0x2000)) Signal;
    done->value = 2;
    Submit(steady, DispatchPacket(kernel, data.va + 0x1000, done));
    Submit(passing, DispatchPacket(kernel, data.va + 0x1000, done));
    expected += 2;
    CHECK(Soon([&] { return done->value == 0; }));
    CHECK_EQ(*data.as<std::atomic<uint64_t>>(), expected);
    CHECK_EQ(DestroyQueue(client, passing), 0);
  }
  CHECK_EQ(DestroyQueue(client, steady), 0);
  CHECK(test.node->log().empty());
}

}  // namespace
}  // namespace mainarch::sim::test
