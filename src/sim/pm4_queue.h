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
#include <utility>
#include <vector>

#include "sim/pm4.h"
#include "sim/queue.h"

namespace mainarch::sim {

class Pm4Queue final : public HwQueue {
 public:
  explicit Pm4Queue(const Setup& setup) : HwQueue(setup), compute_(setup) {}

  bool Step() override {
    if (state_ != State::kActive) {
      if (state_ != State::kSuspended && state_ != State::kHung) Drop();
      return false;
    }
    uint64_t value = 0;
    bool moved = TakeDoorbell(&value);
    if (moved) written_ = std::max(written_, value);
    moved |= StepShader();
    if (state_ == State::kActive) moved |= StepStream();
    return moved;
  }
  void Drop() override {
    stream_.reset();
    compute_.Drop();
  }
  absl::string_view engine() const override { return "PM4 queue"; }
  uint64_t waves() const override { return compute_.waves(); }

 private:
  bool StepShader() {
    const Progress progress = compute_.Run();
    for (const std::string& note : progress.notes) host().Note(note);
    switch (progress.state) {
      case Progress::State::kDone:
      case Progress::State::kWaiting:
        return false;
      case Progress::State::kRunning:
        return true;
      case Progress::State::kFault:
        if (!progress.detail.empty()) host().Note(progress.detail);
        return Fault(progress.fault);
      case Progress::State::kException:
        host().OnException(*this, progress.exception, progress.detail);
        Hang(absl::StrCat("waves halted: ", progress.detail));
        return true;
    }
    return false;
  }

  bool StepStream() {
    MemoryFault fault;
    bool moved = false;
    if (stream_ == nullptr && read_ < written_) {
      if (!Fetch(&fault)) return Fault(fault);
      moved = true;
    }
    if (stream_ == nullptr) return false;
    std::string why;
    compute_.set_gws(gws());
    switch (stream_->Step(&fault, &why, &moved)) {
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
    return true;
  }

  // To the announced end or the ring's, whichever comes first. The read pointer says what has been
  // fetched, not what is done (AMD's suite waits for it while a packet waits for the host), and
  // wraps with the ring; the write pointer does not.
  bool Fetch(MemoryFault* fault) {
    const uint64_t dwords = setup_.ring_bytes / 4;
    std::vector<uint32_t> words(std::min(written_ - read_, dwords - read_ % dwords));
    if (!bus_.Read(setup_.ring_va + read_ % dwords * 4, words.data(), words.size() * 4, fault)) {
      return false;
    }
    read_ += words.size();
    if (!bus_.Store64(setup_.read_va, read_ % dwords, fault)) return false;
    stream_ = std::make_unique<Pm4Stream>(&host(), &compute_, std::move(words));
    return true;
  }

  uint64_t read_ = 0;  // dwords, never wrapped
  uint64_t written_ = 0;
  Pm4Compute compute_;
  std::unique_ptr<Pm4Stream> stream_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PM4_QUEUE_H_
