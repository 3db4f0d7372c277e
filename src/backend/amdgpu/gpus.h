// SPDX-License-Identifier: MIT
//
// The GPUs of a group: this machine's through the kernel driver, or a virtual node's. Each with a
// compute queue, a copy queue and the kernels of its ISA loaded. One rank a GPU.
//
// Owner: the backend; outlives every buffer and queue made on its GPUs. Threads: a Gpu's queues are
// used by one context or one load at a time; `mutex` is held while they are.
#ifndef MAINARCH_BACKEND_AMDGPU_GPUS_H_
#define MAINARCH_BACKEND_AMDGPU_GPUS_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "gpu/copy_queue.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"

namespace mainarch::amdgpu {

struct Gpu {
  gpu::Device* device = nullptr;
  std::unique_ptr<gpu::Queue> queue;
  std::unique_ptr<gpu::CopyQueue> copy;
  std::unique_ptr<gpu::LoadedCode> code;  // the image "decoder"
};

class Gpus {
 public:
  // `text` is a device string: "gpu", "gpu:0-3", "gpu:0,2", "sim:gfx950x8", "sim:gfx950x8:0-3".
  static StatusOr<std::unique_ptr<Gpus>> Open(absl::string_view text);
  // The GPUs of `list` (empty: all) that `sys` shows. `keep_nodes`: leave render nodes open at the
  // end, for a later group of this process to find (gpu/process.h); a real kernel wants that.
  static StatusOr<std::unique_ptr<Gpus>> OpenOn(std::shared_ptr<kfd::Sys> sys,
                                                absl::string_view list, bool keep_nodes);
  ~Gpus();

  int32_t count() const { return static_cast<int32_t>(gpus_.size()); }
  Gpu& at(int32_t rank) { return gpus_[static_cast<size_t>(rank)]; }
  const Gpu& at(int32_t rank) const { return gpus_[static_cast<size_t>(rank)]; }
  std::vector<gpu::Device*> devices() const;
  std::mutex& mutex() { return mutex_; }

  // A step that did not end leaves kernels that wait for their peers for ever. Fail ends them all:
  // every queue of the group is destroyed, and every call from then on returns `status`. The mutex
  // is held.
  void Fail(const Status& status);
  const Status& status() const { return status_; }
  // An error with what the machine itself says of it before it, as a virtual node does of a wave
  // that a checker halted. Otherwise as it is.
  Status Explain(const Status& status) const;

 private:
  Gpus() = default;
  Status OpenOne(uint32_t index);

  std::shared_ptr<kfd::Sys> sys_;
  std::unique_ptr<gpu::Process> process_;
  std::vector<Gpu> gpus_;
  std::mutex mutex_;
  Status status_;
};

// "0-3,5" as {0, 1, 2, 3, 5}; InvalidArgument names the text. For tests.
StatusOr<std::vector<uint32_t>> ParseGpuList(absl::string_view text);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_GPUS_H_
