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
#include "gpu/wait.h"

namespace mainarch::gpu {

class Timeline {
 public:
  enum class Kind : uint8_t { kSignal, kFence };
  // What the signal holds at point 0; its low half is all ones, to wrap when the points' does.
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

  // What a device compares to hold a queue until `point` is reached; kAlways: it is reached
  // already. Engines compare 32 bits, so near a multiple of 2^32 points there is no such comparison
  // and the answer is Busy: then the host must wait instead (Queue::WaitFor and CopyQueue::WaitFor
  // do).
  struct Poll {
    uint32_t reference = 0;
    PollFunction function = PollFunction::kAlways;
  };
  StatusOr<Poll> PollFor(uint64_t point) const { return PollBetween(kind_, Completed(), point); }

  // The arithmetic by itself, for tests of what happens only after 2^32 points.
  static uint64_t CompletedOfFence(uint64_t issued, uint32_t word) {
    return issued - static_cast<uint32_t>(static_cast<uint32_t>(issued) - word);
  }
  static StatusOr<Poll> PollBetween(Kind kind, uint64_t completed, uint64_t point);
  // A device may look late; it must still be in the same 2^32 points when it does. So many points
  // before the end of them no comparison is handed out.
  static constexpr uint64_t kLateness = uint64_t{1} << 24;

  // A packet that holds a compute queue on such a comparison.
  AqlPacket BarrierOn(const Poll& poll, const AqlOrder& order) const;

 private:
  Kind kind_ = Kind::kSignal;
  SignalSlot slot_;
  Event event_;
  std::atomic<uint64_t> issued_{0};
};

// A comparison for a device, made by waiting on the host where there is none yet.
StatusOr<Timeline::Poll> PollOrWait(Device& device, const Timeline& timeline, uint64_t point,
                                    Deadline deadline);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_TIMELINE_H_
