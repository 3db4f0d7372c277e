// SPDX-License-Identifier: MIT
//
// The driver of gpu/ on a virtual node whose kernels are host functions. Nothing in these tests is
// about GPU code; everything is about queues, memory, events and what happens when they fail.
#ifndef MAINARCH_TESTS_SIM_DRIVER_FIXTURE_H_
#define MAINARCH_TESTS_SIM_DRIVER_FIXTURE_H_

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/copy_queue.h"
#include "gpu/kernarg.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "sim/host_executor.h"
#include "sim/sim_sys.h"
#include "support/test.h"

namespace mainarch::test {

// Long enough for a virtual GPU on a busy machine under a sanitizer; a test that reaches it failed.
inline gpu::Deadline Soon() { return gpu::Deadline::In(60'000); }
// For waits that must time out.
inline gpu::Deadline Briefly() { return gpu::Deadline::In(300); }

// The arguments of kernel "add".
struct AddArgs {
  uint64_t address = 0;
  uint64_t value = 0;
};

// A node, a process on it, and the code of two kernels:
//   "add"    u64 at `address` += `value`, once a dispatch
//   "spin"   never ends
class Machine {
 public:
  // Null and a failed context when the node cannot be made. `text` as ParseNode takes it.
  static std::unique_ptr<Machine> Create(const std::string& text, Context& test_context) {
    auto machine = std::make_unique<Machine>();
    auto config = sim::ParseNode(text);
    if (!config.ok()) {
      test_context.Fail(__FILE__, __LINE__, std::string(config.status().message()));
      return nullptr;
    }
    auto executor = std::make_unique<sim::HostExecutor>();
    machine->executor = executor.get();
    executor->Register("add", [](sim::HostCall& call) {
      uint64_t address = 0, value = 0;
      if (!call.Argument(0, &address) || !call.Argument(8, &value) ||
          !call.bus().Add64(address, value, call.fault())) {
        return call.Fault();
      }
      return sim::HostCall::Done();
    });
    executor->Register("spin", [](sim::HostCall&) { return sim::HostCall::Waiting(); });
    auto node = sim::Node::Create(*config, std::move(executor));
    if (!node.ok()) {
      test_context.Fail(__FILE__, __LINE__, std::string(node.status().message()));
      return nullptr;
    }
    machine->node = *node;
    machine->sys = std::make_unique<sim::SimSys>(machine->node);
    machine->text = text;
    return machine;
  }

  ~Machine() {
    process.reset();
    sys.reset();
  }

  Status Open() {
    gpu::ProcessOptions options;
    options.log = Log(&Machine::OnLog, this, static_cast<int32_t>(LogLevel::kDebug));
    ASSIGN_OR_RETURN(process, gpu::Process::Open(*sys, options));
    return {};
  }

  // Every GPU of the node, in order.
  Status OpenAll(std::vector<gpu::Device*>* devices) {
    for (uint32_t i = 0; i < node->gpus().size(); ++i) {
      ASSIGN_OR_RETURN(gpu::Device* const device, process->OpenDevice(i));
      devices->push_back(device);
    }
    return {};
  }

  // A kernel's code in executable VRAM; its descriptor is at the buffer's start.
  static StatusOr<gpu::Buffer> PlaceCode(gpu::Queue& queue, const std::string& kernel) {
    const std::vector<uint8_t> image = sim::HostExecutor::ImageOf(kernel);
    gpu::BufferOptions options;
    options.executable = true;
    options.host_access = true;
    options.label = "test code";
    ASSIGN_OR_RETURN(gpu::Buffer code,
                     gpu::Buffer::Allocate(queue.device(), image.size(), options));
    memcpy(code.host(), image.data(), image.size());
    RETURN_IF_ERROR(queue.device().FlushHostWrites());
    RETURN_IF_ERROR(queue.InvalidateCode(code.va(), code.size(), Soon()));
    return code;
  }

  // Zeroed.
  static StatusOr<gpu::Buffer> SharedMemory(gpu::Device& device, uint64_t bytes) {
    gpu::BufferOptions options;
    options.place = gpu::Place::kSystem;
    options.caching = gpu::Caching::kUncached;
    options.label = "shared memory";
    ASSIGN_OR_RETURN(gpu::Buffer memory, gpu::Buffer::Allocate(device, bytes, options));
    memset(memory.host(), 0, memory.size());
    return memory;
  }

  std::vector<std::string> lines() {
    std::lock_guard<std::mutex> lock(mutex);
    return log_lines;
  }
  static void OnLog(void* user, int32_t, const char* line) {
    auto* machine = static_cast<Machine*>(user);
    std::lock_guard<std::mutex> lock(machine->mutex);
    machine->log_lines.push_back(line);
  }

  std::string text;
  sim::HostExecutor* executor = nullptr;
  std::shared_ptr<sim::Node> node;
  std::unique_ptr<sim::SimSys> sys;
  std::unique_ptr<gpu::Process> process;
  std::mutex mutex;
  std::vector<std::string> log_lines;
};

// A machine with a process, its first GPU with a queue, the code of "add", and a page of shared
// memory.
struct Rig {
  std::unique_ptr<Machine> machine;
  gpu::Device* device = nullptr;
  std::unique_ptr<gpu::Queue> queue;
  gpu::Buffer code;
  gpu::Buffer memory;

  // Null and a failed context when it cannot be made.
  static std::unique_ptr<Rig> Create(const std::string& text, Context& test_context) {
    auto rig = std::make_unique<Rig>();
    rig->machine = Machine::Create(text, test_context);
    if (rig->machine == nullptr) return nullptr;
    const Status status = rig->Open();
    if (status.ok()) return rig;
    test_context.Fail(__FILE__, __LINE__, std::string(status.message()));
    return nullptr;
  }
  Status Open() {
    RETURN_IF_ERROR(machine->Open());
    ASSIGN_OR_RETURN(device, machine->process->OpenDevice(0));
    ASSIGN_OR_RETURN(queue, gpu::Queue::Create(*device, {}));
    ASSIGN_OR_RETURN(code, Machine::PlaceCode(*queue, "add"));
    ASSIGN_OR_RETURN(memory, Machine::SharedMemory(*device, 4096));
    return {};
  }
  ~Rig() {
    code.Release().IgnoreError();
    memory.Release().IgnoreError();
    queue.reset();
  }

  uint64_t* words() { return memory.host<uint64_t>(); }
  // Does the node's log, as a person would read the kernel's, say so?
  bool Logged(const std::string& part) const {
    for (const std::string& line : machine->node->log()) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

// One dispatch of "add".
inline gpu::AqlPacket AddPacket(const gpu::Buffer& code, uint64_t kernarg,
                                const gpu::AqlOrder& order = {}) {
  gpu::Dispatch dispatch;
  dispatch.kernel_object = code.va();
  dispatch.kernarg = kernarg;
  dispatch.workgroup = {64, 1, 1};
  dispatch.grid = {64, 1, 1};
  return gpu::MakeDispatch(dispatch, order);
}

}  // namespace mainarch::test

// The tests stand beside what they test.
namespace mainarch::gpu {
using test::AddArgs;
using test::AddPacket;
using test::Machine;
using test::Rig;
using test::Soon;
}  // namespace mainarch::gpu

// The begin of most tests: a node and a process on it; and its first GPU.
#define MACHINE(text)                                                 \
  auto machine = mainarch::test::Machine::Create(text, test_context); \
  CHECK(machine != nullptr);                                          \
  CHECK_OK(machine->Open())
#define ONE_GPU(text)                            \
  MACHINE(text);                                 \
  auto device = machine->process->OpenDevice(0); \
  CHECK_OK(device)

#endif  // MAINARCH_TESTS_SIM_DRIVER_FIXTURE_H_
