// SPDX-License-Identifier: MIT
//
// A compute queue in PM4 format: the ring is a stream of PM4 packets, of which the subset of
// sim/pm4.h is understood. Pointers and doorbell count dwords.
//
// Threads: as HwQueue.
#ifndef MAINARCH_SIM_PM4_QUEUE_H_
#define MAINARCH_SIM_PM4_QUEUE_H_

#include <algorithm>
#include <memory>

#include "sim/pm4.h"
#include "sim/queue.h"

namespace mainarch::sim {

class Pm4Queue final : public HwQueue {
 public:
  using HwQueue::HwQueue;

  bool Step() override {
    if (state_ != State::kActive) return false;
    MemoryFault fault;
    uint64_t value = 0;
    bool moved = TakeDoorbell(&value);
    if (moved) written_ = std::max(written_, value);
    const uint64_t dwords = setup_.ring_bytes / 4;
    if (stream_ == nullptr && read_ < written_) {
      // One stream to the announced end or the ring's, whichever comes first.
      length_ = std::min(written_ - read_, dwords - read_ % dwords);
      stream_ = std::make_unique<Pm4Stream>(&host(), setup_.ring_va + read_ % dwords * 4,
                                            static_cast<uint32_t>(length_));
    }
    if (stream_ == nullptr) return moved;
    std::string why;
    switch (stream_->Step(&fault, &why)) {
      case Pm4Stream::Result::kBlocked:
        return moved;
      case Pm4Stream::Result::kFault:
        return Fault(fault);
      case Pm4Stream::Result::kBad:
        Hang(why);
        return true;
      case Pm4Stream::Result::kDone:
        break;
    }
    stream_.reset();
    read_ += length_;
    return bus_.Store64(setup_.read_va, read_, &fault) || Fault(fault);
  }
  void Drop() override { stream_.reset(); }
  absl::string_view engine() const override { return "PM4 queue"; }

 private:
  uint64_t read_ = 0;  // dwords, never wrapped
  uint64_t written_ = 0;
  uint64_t length_ = 0;
  std::unique_ptr<Pm4Stream> stream_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PM4_QUEUE_H_
