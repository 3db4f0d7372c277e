// SPDX-License-Identifier: MIT
//
// The GPUs of a group: this machine's through the kernel driver, or a virtual node's. Each with a
// compute queue, a copy queue and the kernels of its ISA loaded. One rank a GPU.
//
// Owner: the backend; outlives every buffer and queue made on its GPUs. Threads: `mutex` is held by
// the one context or load that submits to a Gpu's queues, for all of a step at once, so that every
// GPU gets the steps of different contexts in the same order. Waiting needs no mutex.
#ifndef MAINARCH_BACKEND_AMDGPU_GPUS_H_
#define MAINARCH_BACKEND_AMDGPU_GPUS_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/status.h"
#include "gpu/copy_queue.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "kernels/resident_args.h"

namespace mainarch::amdgpu {

// The resident kernels, by how much room an op has (kernels/resident_args.h).
struct ResidentKind {
  const char *kernel, *back;  // and where ops come back to
  kernels::ResidentRoom room;
};
inline constexpr size_t kResidentKinds = 2;
inline constexpr ResidentKind kResidents[kResidentKinds] = {
    {"resident", "resident_return", kernels::kResidentRoom},
    {"resident_large", "resident_large_return", kernels::kResidentLargeRoom}};

struct Gpu {
  gpu::Device* device = nullptr;
  std::unique_ptr<gpu::Queue> queue;
  std::unique_ptr<gpu::CopyQueue> copy;
  std::unique_ptr<gpu::LoadedCode> code;  // the image "decoder"
  // LoadThreaded: the resident kernels, and the decoder's kernels as each of them jumps into them.
  std::unique_ptr<gpu::LoadedCode> resident, threaded[kResidentKinds];
};

// Who keeps a kernel in the queues that does not end by itself.
class QueueHolder {
 public:
  virtual ~QueueHolder() = default;
  // What is submitted from now on comes to run. `pause`: it may leave in the midst of its work, which it takes up
  // again behind that. The group's mutex is held.
  virtual Status Leave(bool pause) = 0;
};

// What the host writes once and GPUs read: in the GPU's own memory, where the host can write that (and then
// flushes, Device::FlushHostWrites), else in its own.
StatusOr<gpu::Buffer> AllocateWrittenOnce(gpu::Device& device, uint64_t bytes, const char* label);

class Gpus {
 public:
  // `text` is a device string: "gpu", "gpu:0-3", "gpu:0,2", "sim:gfx950x8", "sim:gfx950x8:0-3".
  // `timeout_ms`: how long one piece of work may take, a step or an upload, before the GPU that has
  // it is given up; 0: kTimeoutMs.
  // `log`: what an engine's user should know of its GPUs; called by whoever steps.
  static StatusOr<std::unique_ptr<Gpus>> Open(absl::string_view text, uint32_t timeout_ms = 0, const Log& log = {});
  // The GPUs of `list` (empty: all) that `sys` shows. `keep_nodes`: leave render nodes open at the
  // end, for a later group of this process to find (gpu/process.h); a real kernel wants that.
  static StatusOr<std::unique_ptr<Gpus>> OpenOn(std::shared_ptr<kfd::Sys> sys,
                                                absl::string_view list, bool keep_nodes,
                                                uint32_t timeout_ms = 0, const Log& log = {});
  // Longer than any step takes; a hung GPU costs as much once.
  static constexpr uint32_t kTimeoutMs = 60'000;
  ~Gpus();

  int32_t count() const { return static_cast<int32_t>(gpus_.size()); }
  Gpu& at(int32_t rank) { return gpus_[static_cast<size_t>(rank)]; }
  const Gpu& at(int32_t rank) const { return gpus_[static_cast<size_t>(rank)]; }
  std::vector<gpu::Device*> devices() const;
  std::mutex& mutex() { return mutex_; }
  const Log& log() const { return log_; }

  // For work that begins now.
  gpu::Deadline Soon() const { return gpu::Deadline::ForWork(*sys_, timeout_ms_); }

  // A step that did not end leaves kernels that wait for their peers for ever. Fail ends them all:
  // every queue of the group is halted, and every call from then on returns the status that this
  // one does. A GPU that did not answer in time counts as lost. The mutex is held; who waits for a
  // step without it looks at Health now and then.
  Status Fail(const Status& status);
  // What work other than a step came to: Fail, if a GPU was lost over it. The mutex is held.
  Status Settle(const Status& status) { return status.ok() ? status : SettleError(status); }
  // Before anything is submitted to the queues: whoever else holds them leaves. `holder`: who holds
  // them from now on, or null: then packets come, for which it pauses, unless they are `own`'s, which must run behind
  // its work. The mutex is held.
  Status Claim(QueueHolder* holder, const QueueHolder* own = nullptr) {
    return holder_ == holder ? OkStatus() : ClaimAnew(holder, own);
  }
  void Release(const QueueHolder* holder) { if (holder_ == holder) holder_ = nullptr; }
  // By a rank's copy engine; one thread at a time.
  Status CopyAndWait(int32_t rank, uint64_t to, uint64_t from, uint64_t bytes);
  // Loads what a resident kernel runs, once. The queues are claimed, the mutex is held.
  Status LoadThreaded(size_t kind);
  // Ok, or why no call on this group can work any more. From any thread, without the mutex.
  Status Health() const;
  // An error with what the machine itself says of it before it, as a virtual node does of a wave
  // that a checker halted. Otherwise as it is.
  Status Explain(const Status& status) const;

 private:
  Status SettleError(const Status& status);
  Status ClaimAnew(QueueHolder* holder, const QueueHolder* own);
  Gpus() = default;
  Status OpenOne(uint32_t index);

  std::shared_ptr<kfd::Sys> sys_;
  std::unique_ptr<gpu::Process> process_;
  std::vector<Gpu> gpus_;
  std::mutex mutex_;
  QueueHolder* holder_ = nullptr;
  uint32_t timeout_ms_ = kTimeoutMs;
  Log log_;
  std::atomic<bool> failed_{false};
  Status status_;  // final once failed_
};

// "0-3,5" as {0, 1, 2, 3, 5}; InvalidArgument names the text. For tests.
StatusOr<std::vector<uint32_t>> ParseGpuList(absl::string_view text);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_GPUS_H_
