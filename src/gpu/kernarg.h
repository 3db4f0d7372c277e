// SPDX-License-Identifier: MIT
//
// Room for kernel arguments: a ring in uncached host memory whose parts are free again when the
// queue's timeline passes the point they were used at.
//
//   slot = ring.Allocate(bytes)        fill slot.host, dispatch with slot.va
//   ring.UsedUntil(point)              everything allocated since the last call is busy until then
//
// Threads: the queue's submitter.
#ifndef MAINARCH_GPU_KERNARG_H_
#define MAINARCH_GPU_KERNARG_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "base/status.h"
#include "gpu/memory.h"
#include "gpu/queue.h"

namespace mainarch::gpu {

class KernargRing {
 public:
  struct Slot {
    uint8_t* host = nullptr;
    uint64_t va = 0;
  };

  static StatusOr<std::unique_ptr<KernargRing>> Create(Queue& queue, uint32_t bytes);

  // 64-byte aligned. Waits for the oldest use when there is no room.
  StatusOr<Slot> Allocate(uint32_t bytes, Deadline deadline);
  void UsedUntil(uint64_t point);

 private:
  explicit KernargRing(Queue& queue) : queue_(queue) {}
  struct Use {
    uint64_t end = 0;    // position, monotonic
    uint64_t point = 0;  // free when the timeline reaches it
  };
  void Reclaim();

  Queue& queue_;
  Buffer memory_;
  uint64_t head_ = 0;  // bytes allocated ever
  uint64_t tail_ = 0;  // bytes free again
  std::deque<Use> uses_;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_KERNARG_H_
