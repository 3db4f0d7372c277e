// SPDX-License-Identifier: MIT
//
// What one process holds of the kernel driver: /dev/kfd, the topology, the GPUs it opened, the page
// that interrupts are posted in, and the thread that hears of faults.
//
// The kernel keeps some of this until the process ends, whatever is closed: an address space
// adopted from a render node cannot be adopted from another one, and the event page can be set
// once. So a program that wants to open its GPUs a second time should keep its Process. One that
// makes a second Process nevertheless gets one that works, if the first was told to leave its
// render nodes open: they are found again. Without an event page of its own it waits by polling.
//
// Owner: outlives everything made on its devices. Threads: any.
#ifndef MAINARCH_GPU_PROCESS_H_
#define MAINARCH_GPU_PROCESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "gpu/device.h"
#include "gpu/event.h"
#include "gpu/fork_guard.h"
#include "gpu/memory.h"
#include "kfd/drm.h"
#include "kfd/ioctl.h"
#include "kfd/topology.h"

namespace mainarch::gpu {

class Watcher;

struct ProcessOptions {
  Log log;
  bool leave_render_nodes_open = false;  // at the end, for a later Process of this process to find
};

class Process {
 public:
  static StatusOr<std::unique_ptr<Process>> Open(kfd::Sys& sys, const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Opens the index-th visible GPU, or returns it when it is open. It stays open with the Process.
  StatusOr<Device*> OpenDevice(uint32_t index);

  kfd::Sys& sys() const { return sys_; }
  kfd::Kfd& kfd() const { return *kfd_; }
  const Log& log() const { return options_.log; }
  const kfd::Topology& topology() const { return topology_; }
  kfd::Version driver_version() const { return version_; }
  bool in_opener() const { return guard_->in_opener(); }
  Status CheckProcess() const { return guard_->Check(); }
  // The driver writes why a queue died to where its save area says.
  bool has_queue_exceptions() const { return runtime_enabled_; }

  // The kernel keeps 32 KiB of host memory for the event page until the process ends.
  bool kernel_holds_event_page() const { return kernel_holds_event_page_; }

  // An event for waiting. Its mailbox is 0 when this process has no event page of its own.
  StatusOr<Event> CreateSignalEvent();

  // Fault reports name the allocation nearest to an address. `label` is static text.
  void NoteAllocation(uint64_t va, uint64_t size, const char* label);
  void ForgetAllocation(uint64_t va);
  std::string DescribeAddress(uint64_t va) const;
  struct Allocation {
    uint64_t va = 0;
    uint64_t size = 0;
    const char* label = "";
  };
  std::vector<Allocation> Allocations() const;  // ascending by address

  // A fault was heard of: makes every call on that GPU (0: on all) fail with `status` from now on.
  void MarkLost(uint32_t gpu_id, const Status& status);
  const Device* FindDevice(uint32_t gpu_id) const;  // null: not open

 private:
  Process(kfd::Sys& sys, const ProcessOptions& options);

  StatusOr<std::unique_ptr<kfd::RenderNode>> AcquireVm(const kfd::Node& node);
  Status SetUpEvents(Device& first);
  Status SetUpEventPage(Device& first);
  void DropEventPage();

  kfd::Sys& sys_;
  const ProcessOptions options_;
  kfd::Topology topology_;
  kfd::Version version_;
  std::unique_ptr<ForkGuard> guard_;
  std::unique_ptr<kfd::Kfd> kfd_;
  bool runtime_enabled_ = false;

  // Lock order: open_mutex_, devices_mutex_, a device's own, allocations_mutex_.
  std::mutex open_mutex_;  // one OpenDevice at a time
  mutable std::mutex devices_mutex_;
  std::vector<std::unique_ptr<Device>> devices_;  // by index; null: not open
  mutable std::mutex allocations_mutex_;
  std::map<uint64_t, std::pair<uint64_t, const char*>> allocations_;  // va -> size, label

  Buffer event_page_;
  bool kernel_holds_event_page_ = false;
  std::unique_ptr<Watcher> watcher_;
};

inline bool Device::healthy() const { return process_.in_opener() && !lost(); }

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_PROCESS_H_
