// SPDX-License-Identifier: MIT
//
// The mistakes that hardware answers with silence. Each is made on purpose, by a client that drives
// the ring by hand, and the virtual node must make it visible: the test says how. Each also runs
// without the mistake, so that it is the mistake that is seen.
#include <atomic>

#include "absl/strings/match.h"
#include "gpu/pm4.h"
#include "gpu/queue_sizes.h"
#include "gpu/sdma.h"
#include "sim/driver_fixture.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

int CodeNumber(const Status& status) { return static_cast<int>(CodeOf(status)); }
int Number(Code code) { return static_cast<int>(code); }

struct RawOptions {
  bool sdma = false;
  uint64_t ring_bytes = 4096;    // as told to the kernel
  int64_t extra_ring_bytes = 0;  // of its mapping
  int64_t save_restore_delta = 0;
  int64_t save_area_delta = 0;
  int64_t control_stack_delta = 0;
};

// A queue without any of the care of gpu/queue.h.
struct RawQueue {
  Device* device = nullptr;
  Buffer ring, control, eop, save_area;
  SignalSlot done, error;
  uint32_t id = 0;
  bool created = false;
  uint64_t* doorbell = nullptr;
  uint64_t written = 0;

  ~RawQueue() {
    if (created) device->process().kfd().DestroyQueue(id).IgnoreError();
  }
  QueueDescriptor* descriptor() { return control.host<QueueDescriptor>(); }
  uint32_t* slot(uint64_t index) { return ring.host<uint32_t>() + index % 64 * 16; }

  // The right way; the tests do one thing differently.
  void WriteBody(uint64_t index, const AqlPacket& packet) {
    memcpy(slot(index) + 1, packet.dword + 1, 60);
  }
  void WriteHeader(uint64_t index, const AqlPacket& packet) {
    std::atomic_ref<uint32_t>(*slot(index)).store(packet.dword[0], std::memory_order_release);
  }
  void Announce(uint64_t packets) {
    std::atomic_ref<uint64_t>(descriptor()->write_dispatch_id).store(packets);
  }
  void Ring(uint64_t value) { std::atomic_ref<uint64_t>(*doorbell).store(value); }
  // Until the completion signal has come down to `value`.
  Status Wait(int64_t value, Deadline deadline) {
    return WaitUntil(
        *device, nullptr, deadline, [&]() -> StatusOr<bool> { return done.Value() == value; },
        [&] { return absl::StrCat("signal ", value, ", it is ", done.Value()); });
  }
};

StatusOr<Buffer> Shared(Device& device, uint64_t bytes) {
  return Machine::SharedMemory(device, bytes);
}

StatusOr<std::unique_ptr<RawQueue>> MakeRaw(Device& device, const RawOptions& o) {
  auto queue = std::make_unique<RawQueue>();
  queue->device = &device;
  const SaveAreaSizes sizes = ChooseSaveArea(device.node().properties);
  ASSIGN_OR_RETURN(queue->done, device.NewSignal());
  ASSIGN_OR_RETURN(queue->error, device.NewSignal());
  ASSIGN_OR_RETURN(queue->ring,
                   Shared(device, o.ring_bytes + static_cast<uint64_t>(o.extra_ring_bytes)));
  ASSIGN_OR_RETURN(queue->control, Shared(device, 4096));
  uapi::CreateQueueArgs args = {};
  if (!o.sdma) {
    BufferOptions vram;
    vram.label = "raw vram";
    ASSIGN_OR_RETURN(queue->eop, Buffer::Allocate(device, 4096, vram));
    ASSIGN_OR_RETURN(
        queue->save_area,
        Buffer::Allocate(device, sizes.total + static_cast<uint64_t>(o.save_area_delta), vram));
    for (uint64_t i = 0; i < o.ring_bytes / 64; ++i) *queue->slot(i) = kAqlEmptySlot;
    QueueDescriptor* d = queue->descriptor();
    d->read_dispatch_id_field_base_byte_offset = 0x80;
    d->queue_properties = kQueueIsPtr64;
    d->queue_inactive_signal = queue->error.va();
    args.eop_buffer_address = queue->eop.va();
    args.eop_buffer_size = 4096;
    args.ctx_save_restore_address = queue->save_area.va();
    args.ctx_save_restore_size = static_cast<uint32_t>(sizes.save_restore + o.save_restore_delta);
    args.ctl_stack_size = static_cast<uint32_t>(sizes.control_stack + o.control_stack_delta);
  }
  args.ring_base_address = queue->ring.va();
  args.write_pointer_address = queue->control.va() + 0x38;
  args.read_pointer_address = queue->control.va() + 0x80;
  args.ring_size = static_cast<uint32_t>(o.ring_bytes);
  args.gpu_id = device.gpu_id();
  args.queue_type = o.sdma ? uapi::kQueueTypeSdma : uapi::kQueueTypeComputeAql;
  args.queue_percentage = 100;
  args.queue_priority = 7;
  RETURN_IF_ERROR(device.process().kfd().CreateQueue(&args));
  queue->created = true;
  queue->id = args.queue_id;
  ASSIGN_OR_RETURN(queue->doorbell, device.Doorbell(args.doorbell_offset));
  return queue;
}

// A careful queue that loads code, beside which the test makes its own.
#define BENCH(text)                             \
  auto bench = Rig::Create(text, test_context); \
  CHECK(bench != nullptr)

TEST(doorbell_holds_the_count_instead_of_the_index) {
  for (const bool mistake : {false, true}) {
    BENCH("gfx950x1");
    auto queue = MakeRaw(*bench->device, {});
    CHECK_OK(queue);
    RawQueue& raw = **queue;
    raw.done.get()->value = 1;
    *bench->memory.host<AddArgs>() = {bench->memory.va() + 256, 1};
    AqlOrder order;
    order.completion_signal = raw.done.va();
    const AqlPacket packet = AddPacket(bench->code, bench->memory.va(), order);
    raw.WriteBody(0, packet);
    raw.WriteHeader(0, packet);
    raw.Announce(1);
    raw.Ring(mistake ? 1 : 0);
    const Status status = raw.Wait(0, mistake ? test::Briefly() : Soon());
    if (!mistake) {
      CHECK_OK(status);
    } else {  // a hang, which the deadline catches
      CHECK_EQ(CodeNumber(status), Number(Code::kTimedOut));
      CHECK(bench->Logged("the doorbell takes the index of the last packet"));
    }
  }
}

TEST(header_published_before_the_body) {
  int seen = 0;
  for (const bool mistake : {false, true}) {
    for (int seed = 1; seed <= 20; ++seed) {
      BENCH("gfx950x1,seed=" + std::to_string(seed));
      auto queue = MakeRaw(*bench->device, {});
      CHECK_OK(queue);
      RawQueue& raw = **queue;
      raw.done.get()->value = 1;
      *bench->memory.host<AddArgs>() = {bench->memory.va() + 256, 1};
      AqlOrder order;
      order.completion_signal = raw.done.va();
      const AqlPacket packet = AddPacket(bench->code, bench->memory.va(), order);
      // The slot is reserved first, as producers that share a ring do: from here on the packet
      // processor may look at it.
      raw.Announce(1);
      if (mistake) raw.WriteHeader(0, packet);
      const timespec pause = {0, 5'000'000};
      nanosleep(&pause, nullptr);
      raw.WriteBody(0, packet);
      if (!mistake) raw.WriteHeader(0, packet);
      raw.Ring(0);
      const Status status = raw.Wait(0, mistake ? test::Briefly() : Soon());
      if (!mistake) {
        CHECK_OK(status);
        CHECK_EQ(bench->words()[32], 1u);
      } else if (!status.ok() && raw.error.Value() != 0) {
        ++seen;  // it took a packet whose body was still zeroes: a queue error
      }
      if (mistake && seen > 0) break;
    }
  }
  CHECK_LT(0, seen);
}

TEST(a_missing_barrier_bit) {
  int wrong = 0;
  for (const bool mistake : {false, true}) {
    for (int seed = 1; seed <= 30 && wrong == 0; ++seed) {
      BENCH("gfx950x1,seed=" + std::to_string(seed));
      // A producer that takes its time, and a consumer.
      bench->machine->executor->Register("slow store", [](sim::HostCall& call) {
        uint64_t to = 0;
        if (call.calls() < 10) return sim::HostCall::Again();
        if (!call.Argument(0, &to) || !call.bus().Store64(to, 42, call.fault())) {
          return call.Fault();
        }
        return sim::HostCall::Done();
      });
      bench->machine->executor->Register("copy", [](sim::HostCall& call) {
        uint64_t from = 0, to = 0, value = 0;
        if (!call.Argument(0, &from) || !call.Argument(8, &to) ||
            !call.bus().Load64(from, &value, call.fault()) ||
            !call.bus().Store64(to, value, call.fault())) {
          return call.Fault();
        }
        return sim::HostCall::Done();
      });
      auto store = Machine::PlaceCode(*bench->queue, "slow store");
      auto copy = Machine::PlaceCode(*bench->queue, "copy");
      CHECK_OK(store);
      CHECK_OK(copy);
      const uint64_t va = bench->memory.va();
      bench->words()[0] = va + 64;
      bench->words()[1] = va + 128;
      AqlOrder order;
      CHECK_OK(bench->queue->Submit(AddPacket(*store, va, order), "slow store", Soon()));
      order.barrier = !mistake;
      CHECK_OK(bench->queue->Submit(AddPacket(*copy, va, order), "copy", Soon()));
      auto point = bench->queue->SubmitSignalled(MakeBarrierAnd({}, {}), "end", Soon());
      CHECK_OK(point);
      bench->queue->Ring();
      CHECK_OK(bench->queue->Wait(*point, Soon()));
      if (!mistake) CHECK_EQ(bench->words()[16], 42u);
      if (mistake && bench->words()[16] != 42) ++wrong;  // wrong data
    }
  }
  CHECK_LT(0, wrong);
}

TEST(a_ring_one_page_too_large_or_small) {
  BENCH("gfx950x1");
  RawOptions options;
  options.ring_bytes = 8192;
  CHECK_OK(MakeRaw(*bench->device, options));
  for (const int64_t delta : {4096, -4096}) {
    options.extra_ring_bytes = delta;
    CHECK_EQ(ErrnoOf(MakeRaw(*bench->device, options).status()), EINVAL);
  }
  options.extra_ring_bytes = 0;
  options.sdma = true;
  CHECK_OK(MakeRaw(*bench->device, options));
  options.extra_ring_bytes = 4096;
  CHECK_EQ(ErrnoOf(MakeRaw(*bench->device, options).status()), EINVAL);
}

TEST(wrong_sizes_of_the_save_area) {
  for (const char* node : {"gfx942x1", "gfx950x1"}) {
    BENCH(node);
    RawOptions options;
    CHECK_OK(MakeRaw(*bench->device, options));
    options.save_restore_delta = -4096;
    CHECK_EQ(ErrnoOf(MakeRaw(*bench->device, options).status()), EINVAL);
    options.save_restore_delta = 0;
    options.save_area_delta = 4096;
    CHECK_EQ(ErrnoOf(MakeRaw(*bench->device, options).status()), EINVAL);
    options.save_area_delta = -4096;
    CHECK_EQ(ErrnoOf(MakeRaw(*bench->device, options).status()), EINVAL);
    options.save_area_delta = 0;
    options.control_stack_delta = 4096;
    CHECK_EQ(ErrnoOf(MakeRaw(*bench->device, options).status()), EINVAL);
  }
}

// The virtual GPU runs host functions here, without caches of its own. So the kernel plays the
// cache itself, as strictly as the page's type allows: what lies in a cached page it reads once.
TEST(a_polled_word_in_system_memory_that_is_not_uncached) {
  const struct {
    const char* node;
    Caching caching;
    bool sees_the_store;
  } kCases[] = {{"gfx942x1", Caching::kUncached, true},
                {"gfx942x1", Caching::kDefault, true},  // this chip never caches system memory
                {"gfx950x1", Caching::kUncached, true},
                {"gfx950x1", Caching::kDefault, false}};
  for (const auto& c : kCases) {
    BENCH(c.node);
    std::atomic<uint64_t> cached{~uint64_t{0}};
    std::atomic<bool> started{false};
    bench->machine->executor->Register("poll", [&](sim::HostCall& call) {
      uint64_t address = 0, value = 0;
      sim::Window window;
      if (!call.Argument(0, &address) ||
          !call.dispatch().context->Translate(address, sim::Access::kRead, &window, call.fault()) ||
          !call.bus().Load64(address, &value, call.fault())) {
        return call.Fault();
      }
      if (window.mtype == sim::Mtype::kNc || window.mtype == sim::Mtype::kRw) {
        uint64_t none = ~uint64_t{0};
        cached.compare_exchange_strong(none, value);
        value = cached;
      }
      started = true;
      return value == 1 ? sim::HostCall::Done() : sim::HostCall::Waiting();
    });
    auto poll = Machine::PlaceCode(*bench->queue, "poll");
    CHECK_OK(poll);
    BufferOptions options;
    options.place = Place::kSystem;
    options.caching = c.caching;
    options.label = "flag";
    auto flag = Buffer::Allocate(*bench->device, 4096, options);
    CHECK_OK(flag);
    bench->words()[0] = flag->va();
    auto point =
        bench->queue->SubmitSignalled(AddPacket(*poll, bench->memory.va()), "poll", Soon());
    CHECK_OK(point);
    bench->queue->Ring();
    while (!started) sched_yield();
    std::atomic_ref<uint64_t>(*flag->host<uint64_t>()).store(1);
    const Status status = bench->queue->Wait(*point, c.sees_the_store ? Soon() : test::Briefly());
    CHECK_EQ(CodeNumber(status), Number(c.sees_the_store ? Code::kOk : Code::kTimedOut));
    bench->queue.reset();  // the kernel must end before what it captured
  }
}

TEST(a_copy_count_above_22_bits) {
  BENCH("gfx950x1");
  RawOptions options;
  options.sdma = true;
  auto queue = MakeRaw(*bench->device, options);
  CHECK_OK(queue);
  RawQueue& raw = **queue;
  constexpr uint64_t kBytes = 0x400000 + 4096;
  auto from = Shared(*bench->device, kBytes);
  auto to = Shared(*bench->device, kBytes);
  CHECK_OK(from);
  CHECK_OK(to);
  memset(from->host(), 0x77, kBytes);
  raw.done.get()->value = 1;
  std::vector<uint32_t> commands;
  for (const uint32_t word : MakeCopy(to->va(), from->va(), kBytes)) commands.push_back(word);
  for (const uint32_t word : MakeFence(raw.done.va() + 8, 0)) commands.push_back(word);
  memcpy(raw.ring.host(), commands.data(), commands.size() * 4);
  raw.Announce(commands.size() * 4);  // the same offset holds an SDMA queue's write pointer
  raw.Ring(commands.size() * 4);
  CHECK_OK(raw.Wait(0, Soon()));     // no error, no hang
  CHECK_EQ(to->host()[4095], 0x77);  // wrong data: a short copy
  CHECK_EQ(to->host()[4096], 0x00);
}

TEST(code_at_an_address_that_held_other_code) {
  BENCH("gfx950x1");
  bench->machine->executor->Register("one", [](sim::HostCall& call) {
    uint64_t to = 0;
    if (!call.Argument(0, &to) || !call.bus().Store64(to, 1, call.fault())) return call.Fault();
    return sim::HostCall::Done();
  });
  bench->machine->executor->Register("two", [](sim::HostCall& call) {
    uint64_t to = 0;
    if (!call.Argument(0, &to) || !call.bus().Store64(to, 2, call.fault())) return call.Fault();
    return sim::HostCall::Done();
  });
  auto code = Machine::PlaceCode(*bench->queue, "one");
  CHECK_OK(code);
  bench->words()[0] = bench->memory.va() + 64;
  const auto run = [&]() -> Status {
    ASSIGN_OR_RETURN(
        const uint64_t point,
        bench->queue->SubmitSignalled(AddPacket(*code, bench->memory.va()), "code", Soon()));
    bench->queue->Ring();
    return bench->queue->Wait(point, Soon());
  };
  CHECK_OK(run());
  CHECK_EQ(bench->words()[8], 1u);
  const std::vector<uint8_t> image = sim::HostExecutor::ImageOf("two");
  memcpy(code->host(), image.data(), image.size());
  CHECK_OK(bench->device->FlushHostWrites());
  CHECK_OK(run());
  CHECK_EQ(bench->words()[8], 1u);  // wrong data: the old instructions
  CHECK_OK(bench->queue->InvalidateCode(code->va(), code->size(), Soon()));
  CHECK_OK(run());
  CHECK_EQ(bench->words()[8], 2u);
}

TEST(pointers_inside_a_larger_buffer) {
  BENCH("gfx950x1");
  auto queue = MakeRaw(*bench->device, {});
  CHECK_OK(queue);
  auto large = Shared(*bench->device, 8192);
  CHECK_OK(large);
  uapi::CreateQueueArgs args = {};
  args.ring_base_address = (*queue)->ring.va();
  args.write_pointer_address = large->va() + 0x38;
  args.read_pointer_address = large->va() + 0x80;
  args.ring_size = 4096;
  args.gpu_id = bench->device->gpu_id();
  args.queue_type = uapi::kQueueTypeSdma;
  args.queue_percentage = 100;
  CHECK_EQ(ErrnoOf(bench->device->process().kfd().CreateQueue(&args)), EINVAL);
}

}  // namespace
}  // namespace mainarch::gpu
