// SPDX-License-Identifier: MIT
//
// A code object placed in a GPU's memory, ready to be dispatched. Loading writes the image, makes
// the write visible, and makes the instruction caches forget what was at that address before.
//
// Owner: outlives every dispatch of its kernels. Threads: immutable once loaded.
#ifndef MAINARCH_GPU_LOADER_H_
#define MAINARCH_GPU_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "gpu/code_object.h"
#include "gpu/copy_queue.h"
#include "gpu/memory.h"
#include "gpu/queue.h"

namespace mainarch::gpu {

struct Kernel {
  std::string name;
  uint64_t object = 0;  // VA of the descriptor: what a dispatch names
  uint64_t entry = 0;   // of its first instruction
  uint32_t kernarg_bytes = 0;
  uint32_t group_bytes = 0;    // static LDS; a dispatch adds its dynamic part
  uint32_t private_bytes = 0;  // scratch a work-item
  uint32_t max_workgroup = 0;
};

struct LoadOptions {
  uint32_t scratch_bytes_per_lane = 0;  // of the queue that will run it
  CopyQueue* copy = nullptr;            // needed where the CPU cannot map VRAM
};

class LoadedCode {
 public:
  static StatusOr<std::unique_ptr<LoadedCode>> Load(Queue& queue, const CodeObject& object,
                                                    const LoadOptions& options, Deadline deadline);

  // NotFound names the kernel and the object.
  StatusOr<const Kernel*> Find(absl::string_view name) const;
  const std::vector<Kernel>& kernels() const { return kernels_; }
  uint64_t va() const { return memory_.va(); }
  uint64_t size() const { return memory_.size(); }

 private:
  LoadedCode() = default;

  std::string name_;
  Buffer memory_;
  std::vector<Kernel> kernels_;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_LOADER_H_
