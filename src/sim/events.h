// SPDX-License-Identifier: MIT
//
// The events of one process, as the driver keeps them: signal events with a slot each in the event
// page, and memory / hardware exception / other events without one. Every call returns 0 or a
// negative errno; what the ioctls copy in and out is the caller's business.
//
// Waiting is the kernel's, to the letter (amdkfd/kfd_events.c: set_event, init_event_waiter,
// kfd_wait_on_events). An event that is set hands itself to everybody who sleeps on it at that
// moment, each of them wakes, and an auto-reset event stays clear; only where nobody sleeps does it
// stay set, for the next to come. A table where the first to look takes the event loses wake-ups:
// AMD's runtime sleeps on one event with two threads and needs both to wake.
//
// Threads: any; the table has its own lock, a leaf (nothing else is locked while it is held), so
// the machine's threads may signal from inside a sweep. Wait blocks; a signal handler that ran on
// the waiting thread ends it with -EINTR (the kernel restarts a call whose handler says SA_RESTART;
// here that happens for endless waits only).
#ifndef MAINARCH_SIM_EVENTS_H_
#define MAINARCH_SIM_EVENTS_H_

#include <atomic>
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
  // `nudge_ms`: see NodeConfig; 0: never.
  explicit EventTable(uint32_t kfd_minor, uint32_t nudge_ms = 0)
      : has_age_(kfd_minor >= 14), nudge_ms_(nudge_ms) {}

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
  // Wakes every waiter with -EIO and returns when they have left: the process goes away.
  void Shutdown();

  // An interrupt whose context id has `bits` valid bits. Wakes what the driver would wake.
  void Interrupt(uint32_t context_id, int bits);
  void RaiseMemory(const kfd::uapi::MemoryExceptionData& data);
  void RaiseHardware(const kfd::uapi::HwExceptionData& data);
  // A signal event set from inside the driver (queue exceptions).
  void SetFromDriver(uint32_t id);

  uint64_t count() const;

 private:
  struct Event;
  struct Waiter;
  // One event of one wait.
  struct Place {
    Waiter* waiter = nullptr;
    Event* event = nullptr;  // null: destroyed since
    bool activated = false;
    bool wants_age = false;
  };
  struct Event {
    uint32_t type = 0;
    bool auto_reset = false;
    bool signaled = false;
    uint64_t age = 1;
    std::vector<Place*> waiting;
    kfd::uapi::MemoryExceptionData memory = {};
    kfd::uapi::HwExceptionData hardware = {};
  };
  struct Waiter {
    std::atomic<uint32_t> woken{0};  // a futex
    std::vector<Place> places;
  };

  // All of these with the lock held.
  bool UsesSlot(const Event& event) const;
  void Signal(Event& event);
  bool SlotWritten(uint32_t id) const;
  static void Wake(Waiter& waiter);
  void WakeAll();
  int Enter(absl::Span<const kfd::uapi::EventData> wanted, Waiter& waiter);
  void Leave(Waiter& waiter, bool undo);
  static bool Nudge(Waiter& waiter);
  static uint32_t Test(const Waiter& waiter, bool all);
  static void Report(const Waiter& waiter, absl::Span<kfd::uapi::EventData> out);
  int Block(std::unique_lock<std::mutex>& lock, Waiter& waiter, bool all, uint32_t* timeout_ms,
            uint32_t* result);

  const bool has_age_;
  const uint32_t nudge_ms_;
  mutable std::mutex mutex_;
  std::condition_variable left_;  // somebody left Wait
  std::map<uint32_t, Event> events_;
  std::vector<Waiter*> waiters_;
  uint8_t* page_ = nullptr;
  uint32_t slots_ = 0;
  uint32_t next_id_ = kfd::uapi::kFirstNonSignalEventId;
  bool interrupt_ = false;
  bool shutdown_ = false;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_EVENTS_H_
