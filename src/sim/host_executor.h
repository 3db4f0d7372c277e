// SPDX-License-Identifier: MIT
//
// An Executor whose kernels are host functions: for tests of queues, copies and drivers that need a
// dispatch to do something visible but no instruction set. It says nothing about GPU code.
//
// A kernel is found through the bytes at its entry, which a test puts there (CodeOf), so wrong,
// unmapped or stale code is noticed as it would be with instructions. As hardware does, a GPU
// remembers what it fetched from an address until its instruction caches are invalidated.
//
// Threads: Register any time; the rest is the machine's.
#ifndef MAINARCH_SIM_HOST_EXECUTOR_H_
#define MAINARCH_SIM_HOST_EXECUTOR_H_

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/bus.h"
#include "sim/executor.h"

namespace mainarch::sim {

// What a host function sees of its dispatch, with accesses through the GPU's page table.
class HostCall {
 public:
  explicit HostCall(const Dispatch& dispatch) : dispatch_(dispatch), bus_(*dispatch.context) {}

  const Dispatch& dispatch() const { return dispatch_; }
  const Bus& bus() const { return bus_; }
  // How often the function has been called for this dispatch before.
  uint64_t calls() const { return calls_; }

  // Reads an argument; false (and the fault kept for Fault()) when it is not there.
  template <class T>
  bool Argument(uint64_t offset, T* value) {
    return bus_.Read(dispatch_.kernarg_va + offset, value, sizeof(T), &fault_);
  }
  MemoryFault* fault() { return &fault_; }

  // Results of a call.
  static Progress Done() { return Of(Progress::State::kDone); }
  static Progress Again() { return Of(Progress::State::kRunning); }
  static Progress Waiting() { return Of(Progress::State::kWaiting); }
  Progress Fault() const {
    Progress progress = Of(Progress::State::kFault);
    progress.fault = fault_;
    return progress;
  }

 private:
  friend class HostLaunch;
  static Progress Of(Progress::State state) {
    Progress progress;
    progress.state = state;
    return progress;
  }

  const Dispatch dispatch_;
  const Bus bus_;
  uint64_t calls_ = 0;
  MemoryFault fault_;
};

class HostExecutor final : public Executor {
 public:
  using Kernel = std::function<Progress(HostCall&)>;

  // A kernel by its name; registering again replaces it for later dispatches.
  void Register(absl::string_view name, Kernel kernel);
  // A kernel by the VA of its descriptor, whatever its code bytes are.
  void RegisterAt(uint64_t kernel_object_va, Kernel kernel);

  // The 16 bytes that stand for the code of a named kernel.
  static std::array<uint8_t, 16> CodeOf(absl::string_view name);
  // A loadable image: a kernel descriptor at 0 and the code at 256.
  static std::vector<uint8_t> ImageOf(absl::string_view name, uint32_t group_bytes = 0,
                                      uint32_t private_bytes = 0);

  StatusOr<std::unique_ptr<Launch>> Start(const Dispatch& dispatch) override;
  void InvalidateInstructions(GpuContext& context) override;
  void Forget(const GpuContext& context) override;

 private:
  using Place = std::tuple<uint32_t, uint32_t, uint64_t>;  // process, GPU, entry

  std::mutex mutex_;
  std::map<uint64_t, Kernel> by_id_;
  std::map<uint64_t, Kernel> by_object_;
  std::map<Place, std::array<uint8_t, 16>> fetched_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_HOST_EXECUTOR_H_
