// SPDX-License-Identifier: MIT
//
// One user queue of an SDMA 4.4.x engine. Packets run in order, with the one freedom hardware
// takes: a small write may overtake a copy still under way, so only fences, atomics, traps and
// timestamps say that a copy is over. Copies move in chunks, mixed with the chunks of other queues.
//
// What the engine does not know stops it, as on hardware: the GPU is then reset.
//
// Threads: as HwQueue.
#ifndef MAINARCH_SIM_SDMA_QUEUE_H_
#define MAINARCH_SIM_SDMA_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "sim/queue.h"

namespace mainarch::sim {

class SdmaQueue final : public HwQueue {
 public:
  // `engine` counts as recommended_sdma_engine_id_mask does. `count_bits`: width of a copy's count.
  SdmaQueue(const Setup& setup, uint32_t engine, uint32_t count_bits)
      : HwQueue(setup), engine_(engine), count_mask_((uint64_t{1} << count_bits) - 1) {}

  bool Step() override;
  // A buffer of packets from the driver (ioctl_submit.cc), behind those before it and the ring. With
  // the gate closed.
  void Submit(uint64_t va, uint32_t dwords, uint64_t sequence) {
    submitted_.push_back({va, dwords, sequence, false});
  }
  // The sequence number of the last that has been executed; any thread.
  std::shared_ptr<const std::atomic<uint64_t>> executed() const { return executed_; }
  void Drop() override { copy_.reset(); }
  absl::string_view engine() const override { return "sdma queue"; }
  uint32_t engine_id() const { return engine_; }

 private:
  // The rows of a sub-window that follow the one under way.
  struct Rows {
    uint64_t row_bytes = 0;
    uint32_t rows = 1, slices = 1;                                        // of the window
    uint32_t row = 0, slice = 0;                                          // under way
    uint64_t from = 0, to = 0;                                            // the window's first byte
    uint64_t from_pitch = 0, to_pitch = 0, from_slice = 0, to_slice = 0;  // bytes
  };
  struct CopyJob {
    uint64_t from = 0;
    uint64_t to[2] = {0, 0};
    int targets = 1;
    uint64_t left = 0;
    int64_t not_before_ns = 0;
    std::optional<Rows> rows;  // of a sub-window copy
  };
  enum class Result : uint8_t {
    kDone,     // go on behind it
    kBlocked,  // try again later
    kStopped,  // hung or faulted
  };

  struct Submitted {
    uint64_t va = 0;
    uint32_t dwords = 0;
    uint64_t sequence = 0;
    bool begun = false;
  };

  bool PollDoorbell();
  bool TakeSubmitted();
  bool StepCopy();
  bool TakePacket();
  Result Execute(const std::vector<uint32_t>& packet, bool in_ring);
  Result ExecuteCopy(const std::vector<uint32_t>& packet);
  Result ExecuteWindowCopy(const std::vector<uint32_t>& packet);
  static bool NextRow(CopyJob* job);
  Result ExecuteWrite(const std::vector<uint32_t>& packet);
  Result ExecuteFill(const std::vector<uint32_t>& packet);
  Result ExecuteFence(const std::vector<uint32_t>& packet);
  Result ExecutePoll(const std::vector<uint32_t>& packet);
  Result ExecuteAtomic(const std::vector<uint32_t>& packet);
  Result ExecuteTimestamp(const std::vector<uint32_t>& packet);
  Result ExecuteIndirect(const std::vector<uint32_t>& packet);
  Result ExecuteConditional(const std::vector<uint32_t>& packet);
  Result Stuck(const std::string& why);
  Result Faulted(const MemoryFault& fault) {
    Fault(fault);
    return Result::kStopped;
  }
  // Dwords of the packet that starts with `header`; 0 when it is not known.
  uint32_t PacketDwords(uint32_t header, uint64_t at_va);
  bool ReportReadPointer();
  uint64_t DelayNs(uint64_t from, uint64_t to) const;
  void Tell(const CopyJob& job) const;

  const uint32_t engine_;
  const uint64_t count_mask_;
  uint64_t read_ = 0;     // bytes, never wrapped
  uint64_t written_ = 0;  // as the doorbell says
  uint64_t reported_ = 0;
  std::optional<CopyJob> copy_;
  // An indirect buffer under way: address and dwords left.
  uint64_t ib_va_ = 0;
  uint32_t ib_dwords_ = 0;
  std::deque<Submitted> submitted_;
  const std::shared_ptr<std::atomic<uint64_t>> executed_ = std::make_shared<std::atomic<uint64_t>>(0);
  uint32_t skip_dwords_ = 0;  // of a COND_EXE that did not hold
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_SDMA_QUEUE_H_
