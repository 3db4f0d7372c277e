// SPDX-License-Identifier: MIT
//
// A compute queue: a ring of AQL packets that the GPU reads by itself once the doorbell says how
// far it may. Everything the hardware and the kernel insist on is in Create; afterwards a
// submission is a few stores and no system call.
//
//   Submit(packet) … Submit(packet)   write slots, the header last
//   SubmitSignalled(packet)           the same, and complete a timeline point when it is done
//   Ring()                            the GPU may start (doorbell = index of the last packet)
//   Wait(point, deadline)
//
// Threads: one submitter at a time; Wait and the const methods from any thread.
// Teardown: the destructor destroys the queue whatever it is doing and is bounded by the kernel's
// own time-outs; work that had not finished is lost.
#ifndef MAINARCH_GPU_QUEUE_H_
#define MAINARCH_GPU_QUEUE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "gpu/aql.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/queue_sizes.h"
#include "gpu/ring.h"
#include "gpu/timeline.h"
#include "gpu/wait.h"

namespace mainarch::gpu {

struct QueueOptions {
  uint32_t packets = 1024;  // ring size: a power of two, 64..131072; 4 times what may be in flight
  uint32_t priority = 7;    // 0..15
  uint32_t scratch_bytes_per_lane = 0;               // of the most demanding kernel
  uint64_t scratch_limit_bytes = uint64_t{1} << 30;  // fewer waves at once rather than more memory
  bool profile = false;  // the GPU writes begin and end times into completion signals
  const char* label = "compute queue";  // static text
};

class Queue {
 public:
  static StatusOr<std::unique_ptr<Queue>> Create(Device& device, const QueueOptions& options);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Destroys the queue in the driver now, with all that it is doing. Nothing may be submitted from
  // then on; a wait under way ends at its deadline.
  void Halt();

  // Waits (ringing first) while the ring is full. `label` is static text for reports.
  Status Submit(const AqlPacket& packet, const char* label, const Deadline& deadline);
  // Whether so many packets may be put one after the other with nothing to ask between them; else they are submitted.
  bool Takes(uint64_t packets) const { return device_.healthy() && end_.Fits(packets); }
  void Put(const AqlPacket& packet, const char* label);
  // Sets barrier bit and completion signal; returns the point that the packet completes.
  StatusOr<uint64_t> SubmitSignalled(AqlPacket packet, const char* label, const Deadline& deadline);
  // Holds what is submitted from here on until `point` of another queue's timeline.
  Status WaitFor(const Timeline& timeline, uint64_t point, Deadline deadline);
  void Ring() { end_.Ring(); }

  Status Wait(uint64_t point, Deadline deadline);
  bool Reached(uint64_t point) const { return timeline_.Reached(point); }
  const Timeline& timeline() const { return timeline_; }

  // Makes the instruction caches forget [address, address + size): needed after code was written to
  // an address that may have held other code. Runs on the queue and waits.
  Status InvalidateCode(uint64_t address, uint64_t size, Deadline deadline);

  // Ok, or what the command processor or the driver said against this queue.
  Status Health() const;
  std::string Describe() const;  // where the pointers stand and what was submitted last
  Device& device() const { return device_; }
  uint32_t id() const { return queue_id_; }
  uint32_t capacity() const { return options_.packets; }
  uint64_t submitted() const { return end_.written(); }
  uint64_t rung() const { return end_.rung(); }
  uint64_t taken() const { return end_.read(); }  // packets, as far as the GPU has told
  const SaveAreaSizes& save_area_sizes() const { return sizes_; }

 private:
  Queue(Device& device, const QueueOptions& options) : device_(device), options_(options) {}
  Status AllocateMemory();
  Status FillDescriptor();
  Status FillSaveAreaHeaders();
  Status Start();
  // Out of line: a ring that is full is none that is in a hurry.
  [[gnu::noinline]] Status WaitForSlot(Deadline deadline);
  QueueDescriptor* descriptor() const { return control_.host<QueueDescriptor>(); }

  Device& device_;
  const QueueOptions options_;
  SaveAreaSizes sizes_;
  Buffer ring_;
  Buffer control_;  // one page: the queue descriptor with both pointers
  Buffer eop_;
  Buffer save_area_;
  Buffer scratch_;
  Buffer indirect_;       // PM4 of InvalidateCode
  SignalSlot error_;      // the command processor's word
  SignalSlot exception_;  // the driver's word
  Timeline timeline_;

  bool started_ = false;
  uint32_t queue_id_ = 0;
  RingEnd end_{RingEnd::Doorbell::kLastIndex};  // in packets
  static constexpr size_t kRemembered = 64;
  std::array<std::atomic<const char*>, kRemembered> labels_ = {};
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_QUEUE_H_
