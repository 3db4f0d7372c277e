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
  // The value was read first, so `issued` is not behind it.
  return CompletedOfFence(issued_.load(std::memory_order_acquire), static_cast<uint32_t>(value));
}

AqlPacket Timeline::BarrierOn(const Poll& poll, const AqlOrder& order) const {
  // The packet knows "less" and "greater or equal" only.
  const bool less = poll.function == PollFunction::kLessEqual;
  return MakeBarrierValue(signal_va(), int64_t{poll.reference} + (less ? 1 : 0), 0xffffffff,
                          less ? ValueCondition::kLess : ValueCondition::kGreaterEqual, order);
}

StatusOr<Timeline::Poll> Timeline::PollBetween(Kind kind, uint64_t completed, uint64_t point) {
  if (completed >= point) return Poll{};
  if (point >> 32 != completed >> 32 || (point + kLateness) >> 32 != point >> 32) {
    return Error(Code::kBusy, "point ", point, " cannot be compared in 32 bits from point ",
                 completed);
  }
  if (kind == Kind::kSignal) {
    return Poll{static_cast<uint32_t>(kStart - static_cast<int64_t>(point)),
                PollFunction::kLessEqual};
  }
  return Poll{static_cast<uint32_t>(point), PollFunction::kGreaterEqual};
}

StatusOr<Timeline::Poll> PollOrWait(Device& device, const Timeline& timeline, uint64_t point,
                                    Deadline deadline) {
  auto poll = timeline.PollFor(point);
  if (CodeOf(poll.status()) != Code::kBusy) return poll;
  RETURN_IF_ERROR(WaitUntil(
      device, nullptr, deadline, [&]() -> StatusOr<bool> { return timeline.PollFor(point).ok(); },
      [&] {
        return absl::StrCat("point ", point, " of another queue, which is at ",
                            timeline.Completed());
      }));
  return timeline.PollFor(point);
}

}  // namespace mainarch::gpu
