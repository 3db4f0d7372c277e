// SPDX-License-Identifier: MIT
//
// The driver on the GPUs of this machine, if it has any: memory, copies over every engine, peers,
// dispatches of compiled code, a fault. Each test skips with the driver's own words where there is
// no GPU. Nobody has run these on silicon yet.
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "gpu/copy_queue.h"
#include "gpu/kernarg.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "kfd/linux_sys.h"
#include "support/test.h"

namespace mainarch::gpu {
namespace {

Deadline Soon() { return Deadline::In(20'000); }

struct Machine {
  kfd::LinuxSys sys;
  std::unique_ptr<Process> process;
  std::vector<Device*> devices;
};

// The GPUs that this library drives, or why there are none.
StatusOr<std::unique_ptr<Machine>> OpenMachine() {
  auto machine = std::make_unique<Machine>();
  ProcessOptions options;
  options.leave_render_nodes_open = true;  // the next test opens them again
  ASSIGN_OR_RETURN(machine->process, Process::Open(machine->sys, options));
  Status why = Error(Code::kNoDevice, "the driver lists no gpu");
  for (uint32_t i = 0; i < machine->process->topology().Gpus().size(); ++i) {
    auto device = machine->process->OpenDevice(i);
    if (device.ok()) {
      machine->devices.push_back(*device);
    } else {
      why = device.status();
    }
  }
  if (machine->devices.empty()) return why;
  return machine;
}

#define MACHINE()                                                         \
  auto machine_or = OpenMachine();                                        \
  if (!machine_or.ok()) SKIP(std::string(machine_or.status().message())); \
  Machine& machine = **machine_or

TEST(every_engine_copies) {
  MACHINE();
  for (Device* device : machine.devices) {
    const kfd::NodeProperties& p = device->node().properties;
    const int engines = static_cast<int>(p.num_sdma_engines + p.num_sdma_xgmi_engines);
    BufferOptions shared;
    shared.place = Place::kSystem;
    shared.caching = Caching::kUncached;
    auto host = Buffer::Allocate(*device, 8 << 20, shared);
    CHECK_OK(host);
    auto vram = Buffer::Allocate(*device, 8 << 20, {});
    CHECK_OK(vram);
    for (int engine = 0; engine < engines; ++engine) {
      CopyQueueOptions options;
      options.engine = engine;
      auto queue = CopyQueue::Create(*device, options);
      CHECK_OK(queue);
      memset(host->host(), engine + 1, 4 << 20);
      memset(host->host() + (4 << 20), 0, 4 << 20);
      CHECK_OK((*queue)->Copy(vram->va(), host->va(), (4 << 20) - 3, Soon()));
      CHECK_OK((*queue)->Copy(host->va() + (4 << 20), vram->va(), (4 << 20) - 3, Soon()));
      auto point = (*queue)->Submit(Soon());
      CHECK_OK(point);
      CHECK_OK((*queue)->Wait(*point, Soon()));
      CHECK_EQ(memcmp(host->host(), host->host() + (4 << 20), (4 << 20) - 3), 0);
      CHECK_EQ(host->host()[(8 << 20) - 1], 0);
    }
  }
}

TEST(compiled_code_runs) {
  MACHINE();
  for (Device* device : machine.devices) {
    auto queue = Queue::Create(*device, {.packets = 64, .scratch_bytes_per_lane = 256});
    CHECK_OK(queue);
    auto copy = CopyQueue::Create(*device, {});
    CHECK_OK(copy);
    const char* root = getenv("MAINARCH_BUILD_ROOT");
    auto text = ReadWholeFile(absl::StrCat(root == nullptr ? "build" : root,
                                           "/tests/unit/gpu/kernels_", device->chip().name, ".co"),
                              1 << 20);
    CHECK_OK(text);
    const auto* bytes = reinterpret_cast<const uint8_t*>(text->data());
    auto object = CodeObject::Parse("test kernels", absl::MakeConstSpan(bytes, text->size()));
    CHECK_OK(object);
    LoadOptions load;
    load.scratch_bytes_per_lane = 256;
    load.copy = copy->get();
    auto code = LoadedCode::Load(**queue, *object, load, Soon());
    CHECK_OK(code);
    BufferOptions shared;
    shared.place = Place::kSystem;
    shared.caching = Caching::kUncached;
    auto memory = Buffer::Allocate(*device, 4096, shared);
    CHECK_OK(memory);
    const struct {
      const char* kernel;
      int expected;
    } kCases[] = {{"store_one", 1}, {"store_answer", 42}, {"with_scratch", 25}};
    for (const auto& c : kCases) {
      auto kernel = (*code)->Find(c.kernel);
      CHECK_OK(kernel);
      memset(memory->host(), 0, 4096);
      memory->host<uint64_t>()[0] = memory->va() + 1024;
      memory->host<int>()[2] = 5;  // local[5] = 5 * 5
      Dispatch dispatch;
      dispatch.kernel_object = (*kernel)->object;
      dispatch.kernarg = memory->va();
      dispatch.group_bytes = (*kernel)->group_bytes;
      dispatch.private_bytes = (*kernel)->private_bytes;
      // Around the ring and more.
      for (int i = 0; i < 200; ++i) {
        auto point = (*queue)->SubmitSignalled(MakeDispatch(dispatch, {}), c.kernel, Soon());
        CHECK_OK(point);
        (*queue)->Ring();
        CHECK_OK((*queue)->Wait(*point, Soon()));
      }
      CHECK_EQ(memory->host<int>()[256], c.expected);
    }
  }
}

TEST(peers_reach_each_other) {
  MACHINE();
  if (machine.devices.size() < 2) SKIP("one gpu");
  for (Device* from : machine.devices) {
    for (Device* to : machine.devices) {
      if (from == to) continue;
      BufferOptions options;
      options.host_access = to->node().vram_is_host_visible();
      auto target = Buffer::Allocate(*to, 1 << 20, options);
      CHECK_OK(target);
      CHECK_OK(target->MapTo(*from));
      CopyQueueOptions copy;
      copy.engine = PeerEngine(*from, *to);
      auto queue = CopyQueue::Create(*from, copy);
      CHECK_OK(queue);
      CHECK_OK((*queue)->Fill(target->va(), 0x600d600d, 1 << 20, Soon()));
      auto point = (*queue)->Submit(Soon());
      CHECK_OK(point);
      CHECK_OK((*queue)->Wait(*point, Soon()));
      if (options.host_access) CHECK_EQ(target->host<uint32_t>()[12345], 0x600d600du);
    }
  }
}

}  // namespace
}  // namespace mainarch::gpu
