// SPDX-License-Identifier: MIT
//
// The events of one process, as the driver keeps them: signal events with a slot each in the event
// page, and memory / hardware exception / other events without one. Every call returns 0 or a
// negative errno; what the ioctls copy in and out is the caller's business.
//
// Threads: any; the table has its own lock, a leaf (nothing else is locked while it is held), so
// the machine's threads may signal from inside a sweep. Wait blocks.
#ifndef MAINARCH_SIM_EVENTS_H_
#define MAINARCH_SIM_EVENTS_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "absl/types/span.h"
#include "kfd/uapi/kfd_ioctl.h"

namespace mainarch::sim {

class EventTable {
 public:
  explicit EventTable(uint32_t kfd_minor) : has_age_(kfd_minor >= 14) {}

  // Slots live at `page` (the machine's mapping of a client's buffer, or of the driver's own page).
  bool has_page() const;
  void SetPage(uint8_t* page, uint32_t slots);

  int Create(uint32_t type, bool auto_reset, uint32_t* id, uint32_t* slot);
  int Destroy(uint32_t id);
  int Set(uint32_t id);
  int Reset(uint32_t id);

  // WAIT_EVENTS. `events` is in and out. `result` gets uapi::kWait*. `timeout_ms` is updated when
  // the wait is interrupted, as the kernel does.
  int Wait(absl::Span<kfd::uapi::EventData> events, bool all, uint32_t* timeout_ms,
           uint32_t* result);
  // Makes the next (or the present) Wait end with -EINTR.
  void InterruptWait();
  // Wakes every waiter with -EIO: the process goes away.
  void Shutdown();

  // An interrupt whose context id has `bits` valid bits. Wakes what the driver would wake.
  void Interrupt(uint32_t context_id, int bits);
  void RaiseMemory(const kfd::uapi::MemoryExceptionData& data);
  void RaiseHardware(const kfd::uapi::HwExceptionData& data);
  // A signal event set from inside the driver (queue exceptions).
  void SetFromDriver(uint32_t id);

  uint64_t count() const;

 private:
  struct Event {
    uint32_t type = 0;
    bool auto_reset = false;
    bool signaled = false;
    uint64_t age = 1;
    uint32_t waiters = 0;
    kfd::uapi::MemoryExceptionData memory = {};
    kfd::uapi::HwExceptionData hardware = {};
  };

  bool UsesSlot(const Event& event) const;
  void Signal(uint32_t id, Event& event);  // with the lock held
  bool SlotWritten(uint32_t id) const;
  bool Ready(const kfd::uapi::EventData& wanted, const Event& event) const;
  void Consume(kfd::uapi::EventData& out, Event& event);

  const bool has_age_;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  std::map<uint32_t, Event> events_;
  uint8_t* page_ = nullptr;
  uint32_t slots_ = 0;
  uint32_t next_id_ = kfd::uapi::kFirstNonSignalEventId;
  uint64_t destroyed_ = 0;  // changes at each Destroy: waiters look again
  bool interrupt_ = false;
  bool shutdown_ = false;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_EVENTS_H_
