// SPDX-License-Identifier: MIT
//
// The packet processor of one AQL queue, played as strictly as a client has to expect: a slot is
// read once its header is published and the queue knows of it (by the doorbell, or by the write
// index in memory, as after a preemption); packets start in order and without the barrier bit may
// finish in any; the read index lags; an error is told to the queue's inactive signal and stops the
// queue; a doorbell that promises what is not there hangs it.
//
// Threads: as HwQueue.
#ifndef MAINARCH_SIM_AQL_QUEUE_H_
#define MAINARCH_SIM_AQL_QUEUE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "sim/pm4.h"
#include "sim/queue.h"

namespace mainarch::sim {

// Codes that the packet processor stores to the inactive signal (reference: error codes).
enum class QueueError : uint32_t {
  kScratch = 0x1,
  kDims = 0x2,
  kGroupMemory = 0x4,
  kCode = 0x8,
  kPacket = 0x20,
  kWorkgroup = 0x40,
  kRegisters = 0x80,
  kVendorPacket = 0x100,
};

class AqlQueue final : public HwQueue {
 public:
  explicit AqlQueue(const Setup& setup);
  ~AqlQueue() override = default;

  bool Step() override;
  void Drop() override;
  absl::string_view engine() const override { return "compute queue"; }
  uint64_t waves() const override {
    uint64_t waves = pm4_compute_.waves();
    for (const Running& one : running_) waves += one.launch == nullptr ? 0 : one.launch->waves();
    return waves;
  }

 private:
  using Bytes = std::array<uint8_t, 64>;
  struct Packet {
    uint64_t index = 0;
    Bytes bytes = {};

    template <class T>
    T At(size_t offset) const;
    uint16_t header() const { return At<uint16_t>(0); }
    uint8_t type() const { return bytes[0]; }
    uint32_t acquire_bits() const { return header() >> 9 & 3; }
    uint32_t release_bits() const { return header() >> 11 & 3; }
    // Of a packet that Begin has let through.
    Scope acquire() const { return static_cast<Scope>(acquire_bits()); }
    Scope release() const { return static_cast<Scope>(release_bits()); }
  };
  struct Running {
    Packet packet;
    std::unique_ptr<Launch> launch;  // none: never ends (a hang on demand)
    uint64_t started = 0;            // 100 MHz ticks
  };
  enum class Taken : uint8_t { kNo, kYes, kStop };

  bool PollDoorbell();
  bool TakePackets();
  Taken TakeOne(uint64_t limit);
  bool Begin(const Packet& packet);
  bool BeginDispatch(const Packet& packet);
  bool CheckDispatch(const Packet& packet, Dispatch* dispatch);
  bool CheckScratch(const Packet& packet, Dispatch* dispatch);
  bool ReadDescriptor(const Packet& packet, Dispatch* dispatch);
  bool BeginVendor(const Packet& packet);
  bool WaitOver(bool* over);
  bool WaitValueOver(bool* over);
  bool WaitSignalsOver(bool* over);
  bool StepFront();
  bool StepPm4(bool* over);
  bool RunLaunches();
  bool Complete(const Packet& packet, uint64_t started, uint64_t ended);
  bool Signal(uint64_t signal_va, uint64_t started, uint64_t ended);
  bool Notify(uint64_t signal_va);
  bool ReportReadIndex();
  bool Fail(QueueError error, const std::string& why);
  bool Meet(Trouble trouble, const Packet& packet);
  bool Invalidate(const Packet& packet);
  uint64_t packets() const { return setup_.ring_bytes / 64; }
  uint64_t QueueVa();  // of amd_queue_t; 0 after a fault

  const bool invalidate_;
  uint64_t next_ = 0;            // index of the packet to read next
  uint64_t announced_ = 0;       // packets that a doorbell has announced
  uint64_t completed_ = 0;       // all before it are complete
  uint64_t reported_ = 0;        // what the client sees as read index
  std::set<uint64_t> finished_;  // complete, after one that is not
  std::vector<Running> running_;
  // The packet that keeps later ones from starting: a barrier, a PM4 buffer, one without scratch.
  std::optional<Packet> front_;
  Pm4Compute pm4_compute_;
  std::unique_ptr<Pm4Stream> pm4_;
  bool wants_scratch_ = false;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_AQL_QUEUE_H_
