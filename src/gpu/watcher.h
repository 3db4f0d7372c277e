// SPDX-License-Identifier: MIT
//
// The thread that hears what no signal tells: page faults, memory errors and resets come as kernel
// events, and without a waiter a fault looks like a kernel that never ends. One a Process.
#ifndef MAINARCH_GPU_WATCHER_H_
#define MAINARCH_GPU_WATCHER_H_

#include <atomic>
#include <memory>
#include <thread>

#include "base/status.h"
#include "gpu/event.h"

namespace mainarch::gpu {

class Process;

class Watcher {
 public:
  static StatusOr<std::unique_ptr<Watcher>> Start(Process& process, Event stop);
  ~Watcher();  // ends the thread within one slice of its wait, at worst
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  explicit Watcher(Process& process) : process_(process) {}
  void Run();
  Status WaitOnce();

  Process& process_;
  Event stop_;
  Event memory_;
  Event hardware_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_WATCHER_H_
