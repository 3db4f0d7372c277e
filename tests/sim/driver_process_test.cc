// SPDX-License-Identifier: MIT
//
// Opening: eight GPUs, kernels of several ages, what the machine hides, wrong calls, and two users
// of one machine.
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "gpu/loader.h"
#include "sim/driver_fixture.h"

namespace mainarch::gpu {
namespace {

int CodeNumber(const Status& status) { return static_cast<int>(CodeOf(status)); }
int Number(Code code) { return static_cast<int>(code); }

Status DispatchAdd(Device& device, uint64_t times) {
  ASSIGN_OR_RETURN(auto queue, Queue::Create(device, {}));
  ASSIGN_OR_RETURN(const Buffer code, Machine::PlaceCode(*queue, "add"));
  ASSIGN_OR_RETURN(const Buffer memory, Machine::SharedMemory(device, 4096));
  *memory.host<AddArgs>() = {memory.va() + 512, 1};
  uint64_t point = 0;
  for (uint64_t i = 0; i < times; ++i) {
    ASSIGN_OR_RETURN(point, queue->SubmitSignalled(AddPacket(code, memory.va()), "add", Soon()));
    queue->Ring();
  }
  RETURN_IF_ERROR(queue->Wait(point, Soon()));
  if (memory.host<uint64_t>()[64] != times) {
    return Error(Code::kInternal, memory.host<uint64_t>()[64], " of ", times, " dispatches");
  }
  return {};
}

TEST(eight_gpus_share_addresses) {
  MACHINE("gfx950x8");
  std::vector<Device*> devices;
  CHECK_OK(machine->OpenAll(&devices));
  CHECK_EQ(devices.size(), 8u);
  for (uint32_t i = 0; i < 8; ++i) CHECK_EQ(devices[i]->index(), i);
  CHECK(*machine->process->OpenDevice(3) == devices[3]);  // open once
  BufferOptions options;
  options.peers = devices;
  options.peers.remove_prefix(1);
  options.host_access = true;
  options.label = "shared by all";
  auto buffer = Buffer::Allocate(*devices[0], 3 << 20, options);
  CHECK_OK(buffer);
  CHECK_EQ(buffer->va() % (2 << 20), 0u);
  CHECK_EQ(buffer->mapped_gpu_ids().size(), 8u);
  for (Device* device : devices) {
    auto queue = CopyQueue::Create(*device, {});
    CHECK_OK(queue);
    const uint64_t at = buffer->va() + device->index() * 4096;
    CHECK_OK((*queue)->Fill(at, 0x1000 + device->index(), 4096, Soon()));
    auto point = (*queue)->Submit(Soon());
    CHECK_OK(point);
    CHECK_OK((*queue)->Wait(*point, Soon()));
    CHECK_EQ(buffer->host<uint32_t>()[device->index() * 1024 + 1023], 0x1000 + device->index());
  }
  const Status outside = machine->process->OpenDevice(8).status();
  CHECK_EQ(CodeNumber(outside), Number(Code::kNoDevice));
  CHECK(absl::StrContains(outside.message(), "this process sees 8 gpus"));
}

TEST(kernels_of_all_ages) {
  for (const char* node :
       {"gfx942x1,minor=11", "gfx942x1,minor=14", "gfx950x1,minor=17", "gfx950x1,minor=22"}) {
    ONE_GPU(node);
    CHECK_OK(DispatchAdd(**device, 10));
  }
}

TEST(chips_we_have_nothing_for_are_refused_by_name) {
  MACHINE("gfx90ax1");
  const Status status = machine->process->OpenDevice(0).status();
  CHECK_EQ(CodeNumber(status), Number(Code::kUnsupported));
  CHECK(absl::StrContains(status.message(), "gpu 0 is gfx90a"));
}

TEST(two_processes_share_a_gpu) {
  MACHINE("gfx950x1,seed=77");
  auto other_sys = std::make_unique<sim::SimSys>(machine->node);
  {
    auto other = Process::Open(*other_sys, {});
    CHECK_OK(other);
    auto a = machine->process->OpenDevice(0);
    auto b = (*other)->OpenDevice(0);
    CHECK_OK(a);
    CHECK_OK(b);
    Status status_b;
    std::thread thread([&] { status_b = DispatchAdd(**b, 300); });
    const Status status_a = DispatchAdd(**a, 300);
    thread.join();
    CHECK_OK(status_a);
    CHECK_OK(status_b);
  }
  other_sys.reset();
}

TEST(closing_and_opening_again_in_one_process) {
  auto machine = Machine::Create("gfx950x1", test_context);
  CHECK(machine != nullptr);
  // As the kernel has it: an address space belongs to the first render node that brought it.
  {
    CHECK_OK(machine->Open());
    auto device = machine->process->OpenDevice(0);
    CHECK_OK(device);
    CHECK_OK(DispatchAdd(**device, 1));
    machine->process.reset();
    CHECK_OK(machine->Open());
    const Status again = machine->process->OpenDevice(0).status();
    CHECK_EQ(CodeNumber(again), Number(Code::kBusy));
    CHECK(absl::StrContains(again.message(), "only when the process ends"));
    machine->process.reset();
  }
}

TEST(a_later_process_object_finds_the_render_nodes_of_an_earlier_one) {
  auto machine = Machine::Create("gfx950x2", test_context);
  CHECK(machine != nullptr);
  ProcessOptions options;
  options.leave_render_nodes_open = true;
  for (int round = 0; round < 3; ++round) {
    auto process = Process::Open(*machine->sys, options);
    CHECK_OK(process);
    for (uint32_t i = 0; i < 2; ++i) {
      auto device = (*process)->OpenDevice(i);
      CHECK_OK(device);
      CHECK_OK(DispatchAdd(**device, 5));
    }
    process->reset();
    CHECK_EQ(machine->sys->ledger().fds, 2u);  // one a GPU, not one a round
  }
}

TEST(a_second_process_object_beside_the_first) {
  ONE_GPU("gfx950x2");
  {
    // Another GPU through another object: the event page is set already, so it waits by polling.
    auto second = Process::Open(*machine->sys, {});
    CHECK_OK(second);
    CHECK(!(*second)->has_queue_exceptions());
    auto other = (*second)->OpenDevice(1);
    CHECK_OK(other);
    CHECK(!(*second)->kernel_holds_event_page());
    CHECK_OK(DispatchAdd(**other, 20));
  }
  CHECK_OK(DispatchAdd(**device, 20));
}

TEST(wrong_buffers_are_named) {
  ONE_GPU("gfx950x1");
  BufferOptions options;
  options.label = "weights";
  CHECK(absl::StrContains(Buffer::Allocate(**device, 0, options).status().message(),
                          "weights: size 0"));
  CHECK(!Buffer::Allocate(**device, uint64_t{1} << 50, options).ok());
  const Status full = Buffer::Allocate(**device, uint64_t{1} << 39, options).status();
  CHECK_EQ(CodeNumber(full), Number(Code::kOutOfDeviceMemory));
  CHECK(absl::StrContains(full.message(), "weights of 549755813888 bytes on gpu 0"));
  options.place = Place::kUserMemory;
  CHECK(absl::StrContains(Buffer::Allocate(**device, 4096, options).status().message(),
                          "user address"));
  options.user_address = reinterpret_cast<void*>(uint64_t{0x1001});
  CHECK(!Buffer::Allocate(**device, 4096, options).ok());
  options.place = Place::kDoorbell;
  options.user_address = nullptr;
  CHECK(absl::StrContains(Buffer::Allocate(**device, 4096, options).status().message(),
                          "doorbell page has 8192"));
}

TEST(vram_is_given_back) {
  ONE_GPU("gfx942x1");
  const uint64_t before = machine->node->vram_used(0);
  for (int i = 0; i < 200; ++i) {
    BufferOptions options;
    auto buffer = Buffer::Allocate(**device, uint64_t{100} << 30, options);
    CHECK_OK(buffer);
    CHECK(!Buffer::Allocate(**device, uint64_t{100} << 30, options).ok());
  }
  CHECK_EQ(machine->node->vram_used(0), before);
}

// What a copy engine has written: the fence that orders it comes through another mapping of its memory, which the
// thread sanitizer cannot know.
[[gnu::noinline, gnu::no_sanitize("thread")]] int ByteOf(const Mapping& memory, size_t at) {
  return memory.data()[at];
}

TEST(memory_of_the_caller) {
  ONE_GPU("gfx950x1");
  auto own = Mapping::Anonymous(64 << 10, false);
  CHECK_OK(own);
  memset(own->data(), 0x11, own->size());
  BufferOptions options;
  options.place = Place::kUserMemory;
  options.user_address = own->data();
  options.label = "caller's";
  auto buffer = Buffer::Allocate(**device, own->size(), options);
  CHECK_OK(buffer);
  CHECK(buffer->host() == own->data());
  auto queue = CopyQueue::Create(**device, {});
  CHECK_OK(queue);
  CHECK_OK((*queue)->Fill(buffer->va() + 4096, 0x22222222, 4096, Soon()));
  auto point = (*queue)->Submit(Soon());
  CHECK_OK(point);
  CHECK_OK((*queue)->Wait(*point, Soon()));
  CHECK_EQ(ByteOf(*own, 4095), 0x11);
  CHECK_EQ(ByteOf(*own, 4096), 0x22);
  CHECK_OK(buffer->Release());
  CHECK_EQ(ByteOf(*own, 4096), 0x22);  // the caller's memory stays the caller's
}

TEST(code_objects_load_both_ways) {
  for (const char* chip : {"gfx942", "gfx950"}) {
    ONE_GPU(absl::StrCat(chip, "x1"));
    auto queue = Queue::Create(**device, {.scratch_bytes_per_lane = 256});
    CHECK_OK(queue);
    auto copy = CopyQueue::Create(**device, {});
    CHECK_OK(copy);
    const char* root = getenv("MAINARCH_BUILD_ROOT");
    auto text = ReadWholeFile(
        absl::StrCat(root == nullptr ? "build" : root, "/tests/unit/gpu/kernels_", chip, ".co"),
        1 << 20);
    CHECK_OK(text);
    const auto* bytes = reinterpret_cast<const uint8_t*>(text->data());
    auto object = CodeObject::Parse("test kernels", absl::MakeConstSpan(bytes, text->size()));
    CHECK_OK(object);
    for (CopyQueue* engine : {static_cast<CopyQueue*>(nullptr), copy->get()}) {
      LoadOptions options;
      options.copy = engine;
      CHECK(!LoadedCode::Load(**queue, *object, options, Soon()).ok());  // scratch
      options.scratch_bytes_per_lane = 256;
      auto code = LoadedCode::Load(**queue, *object, options, Soon());
      CHECK_OK(code);
      CHECK(absl::StrContains((*code)->Find("nothing").status().message(), "test kernels"));
      auto kernel = (*code)->Find("store_one");
      CHECK_OK(kernel);
      // The instructions are not executed here; that the packet processor finds the descriptor and
      // the executor is asked for it shows that it lies where it should.
      machine->executor->RegisterAt((*kernel)->object, [](sim::HostCall& call) {
        uint64_t to = 0;
        if (!call.Argument(0, &to) || !call.bus().Store32(to, 1, call.fault())) {
          return call.Fault();
        }
        return sim::HostCall::Done();
      });
      auto memory = Machine::SharedMemory(**device, 4096);
      CHECK_OK(memory);
      *memory->host<uint64_t>() = memory->va() + 64;
      Dispatch dispatch;
      dispatch.kernel_object = (*kernel)->object;
      dispatch.kernarg = memory->va();
      auto point = (*queue)->SubmitSignalled(MakeDispatch(dispatch, {}), "store_one", Soon());
      CHECK_OK(point);
      (*queue)->Ring();
      CHECK_OK((*queue)->Wait(*point, Soon()));
      CHECK_EQ(memory->host<uint32_t>()[16], 1u);
    }
  }
}

TEST(a_kernel_with_more_scratch_than_the_queue_has) {
  ONE_GPU("gfx950x1");
  auto queue = Queue::Create(**device, {.scratch_bytes_per_lane = 64});
  CHECK_OK(queue);
  auto code = Machine::PlaceCode(**queue, "add");
  CHECK_OK(code);
  auto memory = Machine::SharedMemory(**device, 4096);
  CHECK_OK(memory);
  *memory->host<AddArgs>() = {memory->va() + 512, 1};
  Dispatch dispatch;
  dispatch.kernel_object = code->va();
  dispatch.kernarg = memory->va();
  dispatch.private_bytes = 64;
  auto fits = (*queue)->SubmitSignalled(MakeDispatch(dispatch, {}), "fits", Soon());
  CHECK_OK(fits);
  (*queue)->Ring();
  CHECK_OK((*queue)->Wait(*fits, Soon()));
  dispatch.private_bytes = 4096;
  auto point = (*queue)->SubmitSignalled(MakeDispatch(dispatch, {}), "too much", Soon());
  CHECK_OK(point);
  (*queue)->Ring();
  const Status status = (*queue)->Wait(*point, Soon());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "scratch"));
}

}  // namespace
}  // namespace mainarch::gpu
