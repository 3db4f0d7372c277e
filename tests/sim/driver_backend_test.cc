// SPDX-License-Identifier: MIT
//
// The driver as a backend uses it, start to end: open a device, upload weights with a copy engine,
// load code, then step after step: arguments into the ring, many packets, one doorbell, one wait.
// No call into the kernel may be made by a step.
#include <signal.h>

#include <thread>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "sim/driver_fixture.h"

namespace mainarch::gpu {
namespace {

// What a backend keeps for one GPU.
struct Backend {
  std::unique_ptr<Machine> machine;
  Device* device = nullptr;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<CopyQueue> upload;
  std::unique_ptr<KernargRing> kernargs;
  Buffer code, weights, state, staging;

  ~Backend() {
    for (Buffer* buffer : {&code, &weights, &state, &staging}) buffer->Release().IgnoreError();
    kernargs.reset();
    upload.reset();
    queue.reset();
  }

  Status Open() {
    RETURN_IF_ERROR(machine->Open());
    ASSIGN_OR_RETURN(device, machine->process->OpenDevice(0));
    ASSIGN_OR_RETURN(queue, Queue::Create(*device, {}));
    CopyQueueOptions copy;
    copy.engine = HostEngine(*device, Direction::kToDevice);
    ASSIGN_OR_RETURN(upload, CopyQueue::Create(*device, copy));
    ASSIGN_OR_RETURN(kernargs, KernargRing::Create(*queue, 64 << 10));
    ASSIGN_OR_RETURN(code, Machine::PlaceCode(*queue, "add"));
    ASSIGN_OR_RETURN(state, Machine::SharedMemory(*device, 4096));
    BufferOptions vram;
    vram.label = "weights";
    ASSIGN_OR_RETURN(weights, Buffer::Allocate(*device, 1 << 20, vram));
    ASSIGN_OR_RETURN(staging, Machine::SharedMemory(*device, 1 << 20));
    return {};
  }

  // Weights through host memory into VRAM; the compute queue waits for them, not the host.
  Status Upload() {
    for (size_t i = 0; i < staging.size() / 8; ++i) staging.host<uint64_t>()[i] = i;
    RETURN_IF_ERROR(upload->Copy(weights.va(), staging.va(), weights.size(), Soon()));
    ASSIGN_OR_RETURN(const uint64_t uploaded, upload->Submit(Soon()));
    return queue->WaitFor(upload->timeline(), uploaded, Soon());
  }

  // `ops` packets that depend on each other, one doorbell, one wait.
  Status Step(int ops, uint64_t value) {
    uint64_t point = 0;
    for (int i = 0; i < ops; ++i) {
      ASSIGN_OR_RETURN(const KernargRing::Slot slot, kernargs->Allocate(sizeof(AddArgs), Soon()));
      const AddArgs args = {state.va(), value};
      memcpy(slot.host, &args, sizeof args);
      AqlOrder order;
      order.barrier = true;
      const AqlPacket packet = AddPacket(code, slot.va, order);
      if (i + 1 < ops) {
        RETURN_IF_ERROR(queue->Submit(packet, "op", Soon()));
      } else {
        ASSIGN_OR_RETURN(point, queue->SubmitSignalled(packet, "last op", Soon()));
      }
    }
    kernargs->UsedUntil(point);
    queue->Ring();
    return queue->Wait(point, Soon());
  }
};

std::unique_ptr<Backend> MakeBackend(const std::string& node, test::Context& test_context) {
  auto backend = std::make_unique<Backend>();
  backend->machine = Machine::Create(node, test_context);
  if (backend->machine == nullptr) return nullptr;
  const Status opened = backend->Open();
  if (opened.ok()) return backend;
  test_context.Fail(__FILE__, __LINE__, std::string(opened.message()));
  return nullptr;
}

TEST(many_packets_one_doorbell_one_wait) {
  for (const char* node : {"gfx950x1,seed=4", "gfx942x1,seed=5"}) {
    auto backend = MakeBackend(node, test_context);
    CHECK(backend != nullptr);
    CHECK_OK(backend->Upload());
    CHECK_OK(backend->Step(100, 1));  // and the weights are there by now
    const uint64_t before = backend->machine->node->script().ioctls();
    const uint64_t submitted = backend->queue->submitted();
    for (int step = 0; step < 20; ++step) CHECK_OK(backend->Step(100, 1));
    CHECK_EQ(backend->queue->submitted(), submitted + 2000);
    CHECK_EQ(*backend->state.host<uint64_t>(), 2100u);
    // Only waits may have gone to the kernel, and the watcher's.
    const uint64_t calls = backend->machine->node->script().ioctls() - before;
    printf("# %s: %lu calls in 20 steps of 100 packets\n", node, static_cast<unsigned long>(calls));
    CHECK_LT(calls, 2000u);
    auto back = Machine::SharedMemory(*backend->device, 4096);
    CHECK_OK(back);
    CHECK_OK(backend->upload->Copy(back->va(), backend->weights.va() + 4096, 4096, Soon()));
    auto copied = backend->upload->Submit(Soon());
    CHECK_OK(copied);
    CHECK_OK(backend->upload->Wait(*copied, Soon()));
    CHECK_EQ(back->host<uint64_t>()[1], 513u);
  }
}

void OnSignal(int) {}

// The host's own signals land on the waiting thread all the time: no wait is lost by them, and no
// deadline moves.
TEST(signals_of_the_host_disturb_no_wait) {
  struct sigaction action = {}, old = {};
  action.sa_handler = OnSignal;
  CHECK_EQ(sigaction(SIGUSR2, &action, &old), 0);
  auto backend = MakeBackend("gfx950x1,seed=6", test_context);
  CHECK(backend != nullptr);
  auto spin = Machine::PlaceCode(*backend->queue, "spin");
  CHECK_OK(spin);
  std::atomic<bool> stop{false};
  const pthread_t self = pthread_self();
  std::thread pest([&] {
    while (!stop) {
      pthread_kill(self, SIGUSR2);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  Status status;
  for (int step = 0; step < 20 && status.ok(); ++step) status = backend->Step(5, 1);
  const int64_t start = NowNs();
  auto point =
      backend->queue->SubmitSignalled(AddPacket(*spin, backend->state.va()), "spin", Soon());
  backend->queue->Ring();
  const Status late = point.ok() ? backend->queue->Wait(*point, Deadline::In(400)) : point.status();
  const int64_t waited_ms = (NowNs() - start) / 1'000'000;
  stop = true;
  pest.join();
  sigaction(SIGUSR2, &old, nullptr);
  CHECK_OK(status);
  CHECK_EQ(*backend->state.host<uint64_t>(), 100u);
  CHECK_EQ(static_cast<int>(CodeOf(late)), static_cast<int>(Code::kTimedOut));
  CHECK_LE(400, waited_ms);
  CHECK_LT(waited_ms, 30'000);
}

// A dispatch on a GPU whose memory the CPU cannot see: the save area moves to host memory, and code
// goes by the copy engine.
TEST(queues_work_behind_a_small_bar) {
  ONE_GPU("gfx950x1,smallbar=1");
  BufferOptions options;
  options.host_access = true;
  const Status refused = Buffer::Allocate(**device, 4096, options).status();
  CHECK(absl::StrContains(refused.message(), "small BAR"));
  auto queue = Queue::Create(**device, {});
  CHECK_OK(queue);
  auto point = (*queue)->SubmitSignalled(MakeBarrierAnd({}, {}), "barrier", Soon());
  CHECK_OK(point);
  (*queue)->Ring();
  CHECK_OK((*queue)->Wait(*point, Soon()));
}

}  // namespace
}  // namespace mainarch::gpu
