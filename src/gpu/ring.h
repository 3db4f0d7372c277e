// SPDX-License-Identifier: MIT
//
// What a compute queue and a copy queue do alike: the memory both sides poll, the ring's positions
// with doorbell and back-pressure, the wait for a point of the own timeline, and the end.
#ifndef MAINARCH_GPU_RING_H_
#define MAINARCH_GPU_RING_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "gpu/memory.h"
#include "gpu/timeline.h"
#include "gpu/wait.h"

namespace mainarch::gpu {

class Device;
class Process;

// Host memory that no cache keeps: rings, pointers, descriptors. `label` is static text.
BufferOptions SharedWords(const char* label, bool executable);

// The host's end of a ring: what it has written and announced, and what the GPU says it has read,
// in packets or bytes that are never wrapped.
//
// Threads: one submitter; read and rung from any thread.
class RingEnd {
 public:
  // What the doorbell is told: where the last packet lies (AQL), or how much there is (SDMA).
  enum class Doorbell : uint8_t { kLastIndex, kCount };

  explicit RingEnd(Doorbell kind) : kind_(kind) {}
  // `read` and `write` lie in memory that the GPU knows; at most `room` is under way at a time.
  void Attach(uint64_t* read, uint64_t* write, uint64_t room) {
    read_ = read;
    write_ = write;
    room_ = room;
  }
  void set_doorbell(uint64_t* doorbell) { doorbell_ = doorbell; }

  uint64_t written() const { return written_; }
  uint64_t rung() const { return rung_.load(std::memory_order_relaxed); }
  uint64_t read() const {
    return std::atomic_ref<uint64_t>(*read_).load(std::memory_order_acquire);
  }
  // The GPU's word lags behind what it has done, never leads.
  bool Fits(uint64_t more) const { return written_ + more - read() <= room_; }
  void Advance(uint64_t more) { written_ += more; }
  // Announces what was written since the last time.
  void Ring();
  // Until `more` fits, having rung. `health`: what else may end the wait. `what`: what is waited
  // for, asked for when time is up.
  Status WaitForRoom(Device& device, uint64_t more, Deadline deadline,
                     absl::FunctionRef<Status()> health, absl::FunctionRef<std::string()> what);

 private:
  const Doorbell kind_;
  uint64_t* read_ = nullptr;
  uint64_t* write_ = nullptr;
  uint64_t* doorbell_ = nullptr;
  uint64_t room_ = 0;
  uint64_t written_ = 0;
  std::atomic<uint64_t> rung_{0};
};

// Waits for a point that was issued. `health`: what else may end the wait. `describe`: the queue as
// it stands, asked for when time is up.
Status WaitForPoint(Device& device, Timeline& timeline, const char* label, uint64_t point,
                    Deadline deadline, absl::FunctionRef<Status()> health,
                    absl::FunctionRef<std::string()> describe);

// Destroys a queue in the driver whatever it is doing; does nothing in a forked child. Tried twice:
// a hung queue answers ETIME or EIO and is gone all the same, then the second try answers EINVAL.
void DestroyInDriver(Process& process, uint32_t queue_id);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_RING_H_
