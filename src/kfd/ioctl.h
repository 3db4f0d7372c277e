// SPDX-License-Identifier: MIT
//
// /dev/kfd, one typed function an ioctl. Each repeats an interrupted call, and turns an errno into
// a Status whose message names the call and every argument that matters. No policy: what to
// allocate, when, and what to do about a refusal belongs to gpu/.
//
// Owner: one Kfd a process and Sys is enough (the kernel keeps one process object an address
// space). Threads: any. Closes the device when destroyed.
#ifndef MAINARCH_KFD_IOCTL_H_
#define MAINARCH_KFD_IOCTL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "kfd/sys.h"
#include "kfd/uapi/kfd_ioctl.h"

namespace mainarch::kfd {

struct Version {
  uint32_t major = 0;
  uint32_t minor = 0;
};

// The status code an errno of the driver stands for.
Code CodeOfErrno(int err);

class Kfd {
 public:
  static StatusOr<std::unique_ptr<Kfd>> Open(Sys& sys);
  ~Kfd();
  Kfd(const Kfd&) = delete;
  Kfd& operator=(const Kfd&) = delete;

  Sys& sys() const { return sys_; }
  int fd() const { return fd_; }

  StatusOr<Version> GetVersion();
  // Apertures of every GPU of the node, in topology order.
  StatusOr<std::vector<uapi::ProcessDeviceApertures>> GetProcessApertures();
  Status AcquireVm(uint32_t gpu_id, int drm_fd);
  StatusOr<uapi::GetClockCountersArgs> GetClockCounters(uint32_t gpu_id);
  Status SetMemoryPolicy(const uapi::SetMemoryPolicyArgs& policy);
  // Bytes that an allocation of VRAM could get now.
  StatusOr<uint64_t> AvailableMemory(uint32_t gpu_id);

  // Fills handle and mmap_offset.
  Status AllocMemory(uapi::AllocMemoryArgs* args);
  Status FreeMemory(uint64_t handle);
  // Maps to each GPU in turn; `*done` is how many have it, on an error too.
  Status MapMemory(uint64_t handle, absl::Span<const uint32_t> gpu_ids, uint32_t* done);
  Status UnmapMemory(uint64_t handle, absl::Span<const uint32_t> gpu_ids, uint32_t* done);

  // Fills queue_id and doorbell_offset.
  Status CreateQueue(uapi::CreateQueueArgs* args);
  Status UpdateQueue(const uapi::UpdateQueueArgs& args);
  Status DestroyQueue(uint32_t queue_id);
  Status SetCuMask(uint32_t queue_id, absl::Span<const uint32_t> mask);
  StatusOr<uapi::GetQueueWaveStateArgs> GetQueueWaveState(uint32_t queue_id,
                                                          uint64_t ctl_stack_address);

  // Fills event_id and event_slot_index. event_page_offset is the handle of the event page in the
  // first call of a process, 0 later.
  Status CreateEvent(uapi::CreateEventArgs* args);
  Status DestroyEvent(uint32_t event_id);
  Status SetEvent(uint32_t event_id);
  Status ResetEvent(uint32_t event_id);
  // One WAIT_EVENTS of at most `timeout_ms`. True when an event fired (its data is in `events`),
  // false on time-out. An interrupted wait goes on with the time that remains.
  StatusOr<bool> WaitEvents(absl::Span<uapi::EventData> events, bool all, uint32_t timeout_ms);

  // Mode 0 disables.
  Status RuntimeEnable(uint32_t mode, uint64_t r_debug);
  Status SetTrapHandler(uint32_t gpu_id, uint64_t tba, uint64_t tma);
  Status SetScratchBackingVa(uint32_t gpu_id, uint64_t va);
  // The mode in force: 1 on, 0 off; negative `mode` only asks.
  StatusOr<int32_t> SetXnackMode(int32_t mode);
  StatusOr<int> SmiEvents(uint32_t gpu_id);
  StatusOr<int> ExportDmabuf(uint64_t handle, uint32_t flags);
  StatusOr<uint64_t> ImportDmabuf(uint32_t gpu_id, int dmabuf_fd, uint64_t va);
  StatusOr<uapi::GetDmabufInfoArgs> GetDmabufInfo(int dmabuf_fd);
  Status Svm(uint64_t start, uint64_t size, uint32_t op,
             absl::Span<const uapi::SvmAttribute> attributes);

 private:
  explicit Kfd(Sys& sys) : sys_(sys) {}

  // The errno of the call, 0 when it worked. Repeats interrupted calls.
  int Call(uint32_t request, void* argument);

  Sys& sys_;
  int fd_ = -1;
};

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_IOCTL_H_
