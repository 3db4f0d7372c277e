// SPDX-License-Identifier: MIT
//
// A queue on a copy engine (SDMA): moves memory beside the compute units. Every address is one of
// the shared address space, so host, own and peers' memory are all the same to it, as long as this
// GPU maps them.
//
// Commands are collected by Copy, Fill, … and start at Submit, which returns the timeline point
// that is reached when all of them have landed.
//
// Which engine matters between GPUs: each drives one link well, and the driver says which
// (recommended_sdma_engine_id_mask). PeerEngine and HostEngine choose; a kernel that cannot place a
// queue by engine gets one of the right class.
//
// Threads: one submitter at a time; Wait and the const methods from any thread.
#ifndef MAINARCH_GPU_COPY_QUEUE_H_
#define MAINARCH_GPU_COPY_QUEUE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/ring.h"
#include "gpu/sdma.h"
#include "gpu/timeline.h"
#include "gpu/wait.h"

namespace mainarch::gpu {

inline constexpr int32_t kAnyEngine = -1;

// The engine for traffic between `from` and the node it copies to, kAnyEngine if the driver does
// not single one out.
int32_t PeerEngine(const Device& from, const Device& to);
enum class Direction : uint8_t { kToDevice, kFromDevice };
int32_t HostEngine(const Device& device, Direction direction);

struct CopyQueueOptions {
  int32_t engine = kAnyEngine;       // 0 is the first engine optimised for PCIe
  bool xgmi_class = false;           // with kAnyEngine: an engine of the XGMI class
  uint32_t ring_bytes = 64 << 10;    // a power of two, 4 KiB..16 MiB
  const char* label = "copy queue";  // static text
};

class CopyQueue {
 public:
  static StatusOr<std::unique_ptr<CopyQueue>> Create(Device& device,
                                                     const CopyQueueOptions& options);
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Destroys the queue in the driver now, with all that it is doing. Nothing may be submitted from
  // then on; a wait under way ends at its deadline.
  void Halt();

  // Each waits (submitting what is there) while the ring is full. Sizes of any number of bytes are
  // split into commands.
  Status Copy(uint64_t to, uint64_t from, uint64_t bytes, Deadline deadline);
  Status Fill(uint64_t to, uint32_t value, uint64_t bytes, Deadline deadline);  // multiples of 4
  // Stores 32 bits after everything before has landed.
  Status Fence(uint64_t address, uint32_t value, Deadline deadline);
  Status AtomicAdd(uint64_t address, int64_t addend, Deadline deadline);
  // Holds the queue until the 32 bits at `address`, masked, compare so.
  Status Poll(uint64_t address, uint32_t reference, uint32_t mask, PollFunction function,
              Deadline deadline);
  // Holds the queue until `point` of another queue's timeline.
  Status WaitFor(const Timeline& timeline, uint64_t point, Deadline deadline);
  Status Timestamp(uint64_t address, Deadline deadline);  // 32-byte aligned
  Status FlushHostWrites(Deadline deadline);

  // Signals and starts.
  StatusOr<uint64_t> Submit(Deadline deadline);

  Status Wait(uint64_t point, Deadline deadline);
  bool Reached(uint64_t point) const { return timeline_.Reached(point); }
  const Timeline& timeline() const { return timeline_; }
  std::string Describe() const;
  uint32_t id() const { return queue_id_; }
  int32_t engine() const { return engine_; }  // kAnyEngine: the driver chose
  uint64_t written_bytes() const { return end_.written(); }

 private:
  CopyQueue(Device& device, const CopyQueueOptions& options) : device_(device), options_(options) {}
  Status AllocateMemory();
  Status Start();
  Status Emit(absl::Span<const uint32_t> packet, Deadline deadline);
  Status WaitForSpace(uint64_t bytes, Deadline deadline);
  void PadToEnd();
  Status CheckAligned(const char* what, uint64_t address, uint64_t multiple) const;

  Device& device_;
  const CopyQueueOptions options_;
  Buffer ring_;
  Buffer pointers_;  // one page, as the kernel wants
  Timeline timeline_;

  bool started_ = false;
  uint32_t queue_id_ = 0;
  int32_t engine_ = kAnyEngine;
  RingEnd end_{RingEnd::Doorbell::kCount};  // in bytes
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_COPY_QUEUE_H_
