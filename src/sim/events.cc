// SPDX-License-Identifier: MIT
#include "sim/events.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

std::atomic_ref<uint64_t> Slot(uint8_t* page, uint32_t id) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(page)[id]);
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
  if (events_.erase(id) == 0) return -EINVAL;
  ++destroyed_;
  woken_.notify_all();
  return 0;
}

int EventTable::Set(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end() || !UsesSlot(found->second)) return -EINVAL;
  Signal(id, found->second);
  return 0;
}

int EventTable::Reset(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end() || !UsesSlot(found->second)) return -EINVAL;
  found->second.signaled = false;
  return 0;
}

void EventTable::Signal(uint32_t, Event& event) {
  // An auto-reset event that somebody waits for is handed over and stays clear; the waiter sees it
  // through `signaled`, so it is set here and cleared by the one who takes it.
  event.signaled = true;
  ++event.age;
  woken_.notify_all();
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
    Signal(context_id, exact->second);
    return;
  }
  for (auto& [id, event] : events_) {
    if (!UsesSlot(event) || !SlotWritten(id)) continue;
    Slot(page_, id).store(uapi::kUnsignaledSlot);
    Signal(id, event);
  }
}

void EventTable::RaiseMemory(const uapi::MemoryExceptionData& data) {
  std::lock_guard lock(mutex_);
  for (auto& [id, event] : events_) {
    if (event.type != uapi::kEventMemory) continue;
    event.memory = data;
    Signal(id, event);
  }
}

void EventTable::RaiseHardware(const uapi::HwExceptionData& data) {
  std::lock_guard lock(mutex_);
  for (auto& [id, event] : events_) {
    if (event.type != uapi::kEventHwException) continue;
    event.hardware = data;
    Signal(id, event);
  }
}

void EventTable::SetFromDriver(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = events_.find(id);
  if (found != events_.end()) Signal(id, found->second);
}

uint64_t EventTable::count() const {
  std::lock_guard lock(mutex_);
  return events_.size();
}

void EventTable::InterruptWait() {
  std::lock_guard lock(mutex_);
  interrupt_ = true;
  woken_.notify_all();
}

void EventTable::Shutdown() {
  std::lock_guard lock(mutex_);
  shutdown_ = true;
  woken_.notify_all();
}

bool EventTable::Ready(const uapi::EventData& wanted, const Event& event) const {
  if (event.signaled) return true;
  // A client that says which age it saw last is told of what it missed.
  const uint64_t seen = wanted.signal_event_data.last_event_age;
  return has_age_ && event.type == uapi::kEventSignal && seen != 0 && seen != event.age;
}

void EventTable::Consume(uapi::EventData& out, Event& event) {
  if (event.type == uapi::kEventMemory) {
    out.memory_exception_data = event.memory;
  } else if (event.type == uapi::kEventHwException) {
    out.hw_exception_data = event.hardware;
  } else if (event.type == uapi::kEventSignal && has_age_ &&
             out.signal_event_data.last_event_age != 0) {
    out.signal_event_data.last_event_age = event.age;
  }
  if (event.auto_reset) event.signaled = false;
}

int EventTable::Wait(absl::Span<uapi::EventData> wanted, bool all, uint32_t* timeout_ms,
                     uint32_t* result) {
  using Clock = std::chrono::steady_clock;
  const bool forever = *timeout_ms == uapi::kTimeoutInfinite;
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(*timeout_ms);
  std::unique_lock lock(mutex_);
  *result = uapi::kWaitTimeout;
  for (const uapi::EventData& one : wanted) {
    if (events_.count(one.event_id) == 0) return *result = uapi::kWaitFail, -EINVAL;
  }
  // Which of them have been seen signalled: with `all`, they need not be so at the same time.
  std::vector<bool> taken(wanted.size(), false);
  while (true) {
    size_t ready = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto found = events_.find(wanted[i].event_id);
      if (found == events_.end()) return *result = uapi::kWaitFail, -EIO;
      if (!taken[i] && Ready(wanted[i], found->second)) {
        Consume(wanted[i], found->second);
        taken[i] = true;
      }
      if (taken[i]) ++ready;
      if (ready > 0 && !all) break;
    }
    if (wanted.empty() || (all ? ready == wanted.size() : ready > 0)) {
      return *result = uapi::kWaitComplete, 0;
    }
    if (shutdown_) return *result = uapi::kWaitFail, -EIO;
    if (interrupt_) {
      interrupt_ = false;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (!forever) *timeout_ms = static_cast<uint32_t>(std::max<int64_t>(left, 0));
      return -EINTR;
    }
    if (forever) {
      woken_.wait(lock);
    } else if (*timeout_ms == 0 || Clock::now() >= deadline) {
      return 0;
    } else {
      woken_.wait_until(lock, deadline);
    }
  }
}

}  // namespace mainarch::sim
