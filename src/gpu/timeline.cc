// SPDX-License-Identifier: MIT
#include "gpu/timeline.h"

#include <utility>

#include "gpu/process.h"

namespace mainarch::gpu {

StatusOr<Timeline> Timeline::Create(Device& device, Kind kind) {
  Timeline timeline;
  timeline.kind_ = kind;
  ASSIGN_OR_RETURN(timeline.slot_, device.NewSignal());
  ASSIGN_OR_RETURN(timeline.event_, device.process().CreateSignalEvent());
  Signal* signal = timeline.slot_.get();
  signal->value = kind == Kind::kSignal ? kStart : 0;
  signal->event_mailbox = timeline.event_.mailbox();
  signal->event_id = timeline.event_.id();
  return timeline;
}

Timeline::Timeline(Timeline&& other) noexcept { *this = std::move(other); }

Timeline& Timeline::operator=(Timeline&& other) noexcept {
  kind_ = other.kind_;
  slot_ = std::move(other.slot_);
  event_ = std::move(other.event_);
  issued_.store(other.issued_.load());
  return *this;
}

uint64_t Timeline::Completed() const {
  const int64_t value = slot_.Value();
  if (kind_ == Kind::kSignal) return static_cast<uint64_t>(kStart - value);
  // The word is at most 2^31 behind what was issued.
  const uint64_t issued = issued_.load(std::memory_order_relaxed);
  return issued -
         static_cast<uint32_t>(static_cast<uint32_t>(issued) - static_cast<uint32_t>(value));
}

AqlPacket Timeline::BarrierFor(uint64_t point, const AqlOrder& order) const {
  if (kind_ == Kind::kSignal) {
    return MakeBarrierValue(signal_va(), kStart - static_cast<int64_t>(point) + 1, -1,
                            ValueCondition::kLess, order);
  }
  // The word's high half is always 0.
  return MakeBarrierValue(signal_va(), static_cast<int64_t>(point & 0xffffffff), 0xffffffff,
                          ValueCondition::kGreaterEqual, order);
}

StatusOr<Timeline::Poll> Timeline::PollFor(uint64_t point) const {
  const uint64_t completed = Completed();
  if (completed >= point) return Poll{};
  if (point >> 32 != completed >> 32) {
    return Error(Code::kBusy, "point ", point, " cannot be polled for from point ", completed,
                 ": their high halves differ");
  }
  if (kind_ == Kind::kSignal) {
    return Poll{static_cast<uint32_t>(kStart - static_cast<int64_t>(point)),
                PollFunction::kLessEqual};
  }
  return Poll{static_cast<uint32_t>(point), PollFunction::kGreaterEqual};
}

}  // namespace mainarch::gpu
