// SPDX-License-Identifier: MIT
//
// What every user queue of the virtual hardware has: a ring, a doorbell, pointers in memory, and a
// state that says whether it still moves. The kinds are aql_queue.h, sdma_queue.h and pm4_queue.h.
//
// Threads: Step is called by the one machine thread that serves the GPU, inside a sweep; everything
// else while the gate is closed.
#ifndef MAINARCH_SIM_QUEUE_H_
#define MAINARCH_SIM_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/bus.h"
#include "sim/executor.h"
#include "sim/profile.h"
#include "sim/rng.h"
#include "sim/script.h"

namespace mainarch::sim {

class HwQueue;

// What a queue may ask of the GPU and the process it belongs to.
class QueueHost {
 public:
  virtual ~QueueHost() = default;

  virtual GpuContext& context() = 0;
  virtual Executor& executor() = 0;
  virtual const NodeConfig& config() const = 0;
  virtual Script& script() = 0;

  // A line for the node's log: what a person would look for in the kernel log.
  virtual void Note(const std::string& line) = 0;
  // An interrupt with `bits` valid bits of context id: wakes the process' events.
  virtual void Interrupt(uint32_t context_id, int bits) = 0;
  // A page fault: evicts every queue of the process on this GPU and raises its memory events.
  virtual void OnFault(HwQueue& queue, const MemoryFault& fault) = 0;
  // Waves of a dispatch halted.
  virtual void OnException(HwQueue& queue, WaveException exception, const std::string& detail) = 0;
  // The packet processor refused a packet; `code` is the kernel's EC_QUEUE_* number.
  virtual void OnPacketError(HwQueue& queue, uint32_t code) = 0;
  // The engine is stuck, or worse.
  virtual void OnTrouble(HwQueue& queue, Trouble trouble) = 0;
};

class HwQueue {
 public:
  struct Setup {
    QueueHost* host = nullptr;
    uint32_t id = 0;
    uint64_t ring_va = 0;
    uint64_t ring_bytes = 0;
    uint64_t read_va = 0;   // where the queue reports how far it has read
    uint64_t write_va = 0;  // where the client says how far it has written
    uint8_t* doorbell = nullptr;
    uint64_t save_area_va = 0;  // CWSR headers; 0: none
    uint32_t first_xcc = 0;
    uint64_t seed = 0;
  };

  enum class State : uint8_t {
    kActive,
    kSuspended,  // the client set percentage 0 or no ring
    kHung,       // moves no more; nothing says so but a deadline
    kHalted,     // stopped itself after telling its error signal
    kEvicted,    // a page fault of its process on this GPU
    kReset,      // killed by a GPU reset
  };

  explicit HwQueue(const Setup& setup)
      : setup_(setup), bus_(setup.host->context()), rng_(setup.seed) {}
  virtual ~HwQueue() = default;
  HwQueue(const HwQueue&) = delete;
  HwQueue& operator=(const HwQueue&) = delete;

  // Does a bounded piece of work. False when there was nothing that could be done.
  virtual bool Step() = 0;
  // Lets go of everything in flight; the state must not be kActive any more.
  virtual void Drop() {}
  virtual absl::string_view engine() const = 0;  // "compute queue", "sdma queue"
  // Of its dispatches, on the GPU now. With the gate closed.
  virtual uint64_t waves() const { return 0; }

  const Setup& setup() const { return setup_; }
  uint32_t id() const { return setup_.id; }
  State state() const { return state_; }
  void set_state(State state) { state_ = state; }
  // Cannot be preempted: destroying it takes a reset.
  bool stuck() const { return stuck_; }
  // Whether its waves may use global wave sync.
  bool gws() const { return gws_; }
  void set_gws(bool gws) { gws_ = gws; }
  void set_ring(uint64_t va, uint64_t bytes) {
    setup_.ring_va = va;
    setup_.ring_bytes = bytes;
  }

  // The value a doorbell page is filled with: no client rings it, so a change is a ring.
  static constexpr uint64_t kSilent = ~uint64_t{0};

 protected:
  QueueHost& host() const { return *setup_.host; }

  // The doorbell when it has been rung since the last call. A 32-bit store leaves the upper half
  // silent: the queue hangs.
  bool TakeDoorbell(uint64_t* value) {
    const uint64_t now =
        std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(setup_.doorbell)).load();
    if (now == last_doorbell_) return false;
    last_doorbell_ = now;
    *value = now;
    if (now >> 32 == 0xffffffff) {
      Hang(absl::StrCat("doorbell holds ", absl::Hex(now), ": not one 64-bit store"));
      return false;
    }
    return true;
  }

  void Hang(const std::string& why) {
    if (state_ != State::kActive) return;
    state_ = State::kHung;
    host().Note(absl::StrCat(engine(), " ", id(), " hangs: ", why));
  }
  // For use in `return Fault(fault);` of a Step: something happened.
  bool Fault(const MemoryFault& fault) {
    host().OnFault(*this, fault);
    return true;
  }

  Setup setup_;
  Bus bus_;
  Rng rng_;
  State state_ = State::kActive;
  bool stuck_ = false;
  bool gws_ = false;

 private:
  uint64_t last_doorbell_ = kSilent;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_QUEUE_H_
