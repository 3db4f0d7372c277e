// SPDX-License-Identifier: MIT
#include "sim/events.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

std::atomic_ref<uint64_t> Slot(uint8_t* page, uint32_t id) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(page)[id]);
}

constexpr int64_t kNsPerMs = 1'000'000;
// AMD's runtime says 2^32 - 2 where it means for ever; its conformance suite waits a minute.
constexpr uint32_t kLongMs = 600'000;

// Sleeps while the word is 0, until `deadline_ns` (negative: for ever). False when a signal handler
// ran meanwhile. A futex rather than a condition variable, which does not tell.
bool FutexWait(std::atomic<uint32_t>& word, int64_t deadline_ns) {
  timespec left = {};
  if (deadline_ns >= 0) {
    const int64_t ns = std::max<int64_t>(deadline_ns - NowNs(), 0);
    left.tv_sec = ns / 1'000'000'000;
    left.tv_nsec = ns % 1'000'000'000;
  }
  const long result = syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, 0,
                              deadline_ns < 0 ? nullptr : &left, nullptr, 0);
  return result == 0 || errno != EINTR;
}

}  // namespace

bool EventTable::has_page() const {
  std::lock_guard lock(mutex_);
  return page_ != nullptr;
}

void EventTable::SetPage(uint8_t* page, uint32_t slots) {
  std::lock_guard lock(mutex_);
  page_ = page;
  slots_ = slots;
  for (uint32_t i = 0; i < slots; ++i) Slot(page, i).store(uapi::kUnsignaledSlot);
}

bool EventTable::UsesSlot(const Event& event) const {
  return event.type == uapi::kEventSignal || event.type == uapi::kEventDebug;
}

int EventTable::Create(uint32_t type, bool auto_reset, uint32_t* id, uint32_t* slot) {
  std::lock_guard lock(mutex_);
  Event event;
  event.type = type;
  event.auto_reset = auto_reset;
  if (UsesSlot(event)) {
    // Slot 0 stays unused: an interrupt of context 0 is a known glitch and dropped.
    uint32_t free = 1;
    while (free < slots_ && events_.count(free) != 0) ++free;
    if (free >= slots_) return -ENOSPC;
    Slot(page_, free).store(uapi::kUnsignaledSlot);
    *id = *slot = free;
  } else {
    *id = next_id_++;
    *slot = 0;
  }
  events_[*id] = event;
  return 0;
}

int EventTable::Destroy(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end()) return -EINVAL;
  for (Place* place : found->second.waiting) {
    place->event = nullptr;
    Wake(*place->waiter);
  }
  events_.erase(found);
  return 0;
}

int EventTable::Set(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end() || !UsesSlot(found->second)) return -EINVAL;
  Signal(found->second);
  return 0;
}

int EventTable::Reset(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end() || !UsesSlot(found->second)) return -EINVAL;
  found->second.signaled = false;
  return 0;
}

void EventTable::Signal(Event& event) {
  event.signaled = !event.auto_reset || event.waiting.empty();
  ++event.age;
  for (Place* place : event.waiting) {
    place->activated = true;
    Wake(*place->waiter);
  }
}

void EventTable::Wake(Waiter& waiter) {
  waiter.woken.store(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&waiter.woken), FUTEX_WAKE_PRIVATE, 1, nullptr,
          nullptr, 0);
}

void EventTable::WakeAll() {
  for (Waiter* waiter : waiters_) Wake(*waiter);
}

bool EventTable::SlotWritten(uint32_t id) const {
  return id < slots_ && Slot(page_, id).load() != uapi::kUnsignaledSlot;
}

void EventTable::Interrupt(uint32_t context_id, int bits) {
  std::lock_guard lock(mutex_);
  if (page_ == nullptr) return;
  if (bits < 32) context_id &= (1u << bits) - 1;
  const auto exact = events_.find(context_id);
  if (exact != events_.end() && UsesSlot(exact->second) && SlotWritten(context_id)) {
    Slot(page_, context_id).store(uapi::kUnsignaledSlot);
    Signal(exact->second);
    return;
  }
  for (auto& [id, event] : events_) {
    if (!UsesSlot(event) || !SlotWritten(id)) continue;
    Slot(page_, id).store(uapi::kUnsignaledSlot);
    Signal(event);
  }
}

void EventTable::RaiseMemory(const uapi::MemoryExceptionData& data) {
  std::lock_guard lock(mutex_);
  for (auto& [id, event] : events_) {
    if (event.type != uapi::kEventMemory) continue;
    event.memory = data;
    Signal(event);
  }
}

void EventTable::RaiseHardware(const uapi::HwExceptionData& data) {
  std::lock_guard lock(mutex_);
  for (auto& [id, event] : events_) {
    if (event.type != uapi::kEventHwException) continue;
    event.hardware = data;
    Signal(event);
  }
}

void EventTable::SetFromDriver(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found != events_.end()) Signal(found->second);
}

uint64_t EventTable::count() const {
  std::lock_guard lock(mutex_);
  return events_.size();
}

void EventTable::InterruptWait() {
  std::lock_guard lock(mutex_);
  interrupt_ = true;
  WakeAll();
}

void EventTable::Shutdown() {
  std::unique_lock lock(mutex_);
  shutdown_ = true;
  WakeAll();
  left_.wait(lock, [this] { return waiters_.empty(); });
}

// Takes what is signalled already and queues up for the rest. What was taken before an unknown id
// stays taken, as in the kernel.
int EventTable::Enter(absl::Span<const uapi::EventData> wanted, Waiter& waiter) {
  waiters_.push_back(&waiter);
  waiter.places.resize(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = events_.find(wanted[i].event_id);
    if (found == events_.end()) return -EINVAL;
    Event& event = found->second;
    Place& place = waiter.places[i];
    place.waiter = &waiter;
    place.event = &event;
    place.activated = event.signaled;
    event.signaled = event.signaled && !event.auto_reset;
    // A client that says which age it saw last is told of what it missed.
    const uint64_t seen = wanted[i].signal_event_data.last_event_age;
    place.wants_age = has_age_ && event.type == uapi::kEventSignal && seen != 0;
    if (place.wants_age && seen != event.age) place.activated = true;
    if (!place.activated) event.waiting.push_back(&place);
  }
  return 0;
}

void EventTable::Leave(Waiter& waiter, bool undo) {
  for (Place& place : waiter.places) {
    if (place.event == nullptr) continue;
    auto& waiting = place.event->waiting;
    waiting.erase(std::remove(waiting.begin(), waiting.end(), &place), waiting.end());
    if (undo && place.activated && place.event->auto_reset) Signal(*place.event);
  }
  waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), &waiter), waiters_.end());
  left_.notify_all();
}

uint32_t EventTable::Test(const Waiter& waiter, bool all) {
  size_t activated = 0;
  for (const Place& place : waiter.places) {
    if (place.event == nullptr) return uapi::kWaitFail;
    if (!place.activated) continue;
    if (!all) return uapi::kWaitComplete;
    ++activated;
  }
  return activated == waiter.places.size() ? uapi::kWaitComplete : uapi::kWaitTimeout;
}

void EventTable::Report(const Waiter& waiter, absl::Span<uapi::EventData> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const Place& place = waiter.places[i];
    if (!place.activated) continue;
    if (place.event->type == uapi::kEventMemory) {
      out[i].memory_exception_data = place.event->memory;
    } else if (place.event->type == uapi::kEventHwException) {
      out[i].hw_exception_data = place.event->hardware;
    } else if (place.wants_age) {
      out[i].signal_event_data.last_event_age = place.event->age;
    }
  }
}

// Wakes a wait for no reason. False when it waits for nothing that can be told so.
bool EventTable::Nudge(Waiter& waiter) {
  bool any = false;
  for (Place& place : waiter.places) {
    if (place.event == nullptr || place.event->type != uapi::kEventSignal) continue;
    any = place.activated = true;
  }
  return any;
}

// Sleeps until there is a result, time is up, or a signal comes.
int EventTable::Block(std::unique_lock<std::mutex>& lock, Waiter& waiter, bool all,
                      uint32_t* timeout_ms, uint32_t* result) {
  const bool forever = *timeout_ms == uapi::kTimeoutInfinite;
  const int64_t deadline = forever ? -1 : NowNs() + int64_t{*timeout_ms} * kNsPerMs;
  // A wait with a limit of its own ends without help, and its caller may count on the limit.
  const bool nudges = nudge_ms_ != 0 && *timeout_ms >= kLongMs;
  const int64_t nudge = nudges ? NowNs() + int64_t{nudge_ms_} * kNsPerMs : -1;
  bool signalled = false;
  bool nudged = nudge < 0;
  while (true) {
    if (signalled || interrupt_) {
      interrupt_ = false;
      if (!forever) {
        *timeout_ms = static_cast<uint32_t>(std::max<int64_t>(deadline - NowNs(), 0) / kNsPerMs);
      }
      return -EINTR;
    }
    if (shutdown_) return -EIO;
    *result = Test(waiter, all);
    if (*result != uapi::kWaitTimeout) return 0;
    if (!forever && NowNs() >= deadline) return 0;
    if (!nudged && NowNs() >= nudge) {
      nudged = true;
      if (Nudge(waiter)) continue;
    }
    waiter.woken.store(0, std::memory_order_relaxed);
    lock.unlock();
    signalled = !FutexWait(waiter.woken, nudged ? deadline : nudge);
    lock.lock();
  }
}

int EventTable::Wait(absl::Span<uapi::EventData> wanted, bool all, uint32_t* timeout_ms,
                     uint32_t* result) {
  Waiter waiter;
  std::unique_lock lock(mutex_);
  int error = Enter(wanted, waiter);
  if (error == 0) {
    *result = Test(waiter, all);
    if (*result == uapi::kWaitTimeout) error = Block(lock, waiter, all, timeout_ms, result);
  }
  if (error == 0 && *result == uapi::kWaitComplete) Report(waiter, wanted);
  // What an interrupted wait had been given goes back, so that its repetition finds it.
  Leave(waiter, error == -EINTR);
  if (error != 0) return *result = uapi::kWaitFail, error;
  return *result == uapi::kWaitFail ? -EIO : 0;
}

}  // namespace mainarch::sim
