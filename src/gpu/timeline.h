// SPDX-License-Identifier: MIT
//
// How far a queue has come: points 1, 2, 3 … are issued in order and completed in order, so that
// "wait for point n" is the whole of synchronisation. 64 bits, never wrapping.
//
// A compute queue counts through its packets' completion signal, which hardware decrements: a point
// is complete when the signal has come down that far, and only packets with the barrier bit may
// carry one. A copy queue stores the low 32 bits of the point with a fence; the rest is inferred,
// which is exact as long as fewer than 2^31 points are in flight.
//
// Threads: Issue by the queue's one submitter; everything else from any thread.
#ifndef MAINARCH_GPU_TIMELINE_H_
#define MAINARCH_GPU_TIMELINE_H_

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "gpu/device.h"
#include "gpu/event.h"
#include "gpu/sdma.h"

namespace mainarch::gpu {

class Timeline {
 public:
  enum class Kind : uint8_t { kSignal, kFence };
  // What the signal holds at point 0. Its low half is all ones: 2^32 points pass before an engine
  // that compares 32 bits must look at the high half.
  static constexpr int64_t kStart = 0x3fffffff'ffffffff;

  Timeline() = default;
  static StatusOr<Timeline> Create(Device& device, Kind kind);
  Timeline(Timeline&& other) noexcept;
  Timeline& operator=(Timeline&& other) noexcept;

  uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }
  uint64_t Issue() { return issued_.fetch_add(1, std::memory_order_relaxed) + 1; }
  void TakeBack() { issued_.fetch_sub(1, std::memory_order_relaxed); }
  uint64_t Completed() const;
  bool Reached(uint64_t point) const { return Completed() >= point; }

  Event& event() { return event_; }
  const Signal* signal() const { return slot_.get(); }
  // Of the whole signal, for a completion signal; and of the word that fences are stored to.
  uint64_t signal_va() const { return slot_.va(); }
  uint64_t value_va() const { return slot_.va() + offsetof(Signal, value); }

  // A packet that holds a compute queue until `point` is reached.
  AqlPacket BarrierFor(uint64_t point, const AqlOrder& order) const;
  // The 32-bit comparison that holds a copy queue until `point` is reached. Busy: the point is so
  // far ahead that 32 bits do not tell (2^32 points at most); wait for an earlier one first.
  struct Poll {
    uint32_t reference = 0;
    PollFunction function = PollFunction::kAlways;
  };
  StatusOr<Poll> PollFor(uint64_t point) const;

 private:
  Kind kind_ = Kind::kSignal;
  SignalSlot slot_;
  Event event_;
  std::atomic<uint64_t> issued_{0};
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_TIMELINE_H_
