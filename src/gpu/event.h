// SPDX-License-Identifier: MIT
//
// One kernel event: something a thread can sleep on until an interrupt. Move-only, destroyed with
// its object. All of them reset themselves when a waiter takes them.
#ifndef MAINARCH_GPU_EVENT_H_
#define MAINARCH_GPU_EVENT_H_

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "kfd/uapi/kfd_ioctl.h"

namespace mainarch::gpu {

class Process;

class Event {
 public:
  Event() = default;
  // `page_handle` is the event page's buffer in the first call of a process, 0 in all others;
  // `page` is where that page is, 0 when there is none.
  static StatusOr<Event> Create(Process& process, uint32_t type, uint64_t page_handle,
                                uint64_t page);
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept;
  ~Event() { Release().IgnoreError(); }

  bool valid() const { return process_ != nullptr; }
  uint32_t id() const { return id_; }
  // Where the GPU writes the id before it interrupts; 0: it cannot.
  uint64_t mailbox() const { return mailbox_; }

  // Sleeps until it fires or `timeout_ms` passes; true: it fired.
  StatusOr<bool> Wait(uint32_t timeout_ms);
  // Fires it from the CPU. Signal events only.
  Status Set();
  Status Release();

 private:
  Process* process_ = nullptr;
  uint32_t id_ = 0;
  uint64_t mailbox_ = 0;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_EVENT_H_
