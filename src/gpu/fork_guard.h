// SPDX-License-Identifier: MIT
//
// Tells the process that opened the GPUs from a child made by fork, at the cost of one load. A
// child has neither the doorbells nor the right to call the driver, and must not even release what
// it inherited copies of: every entry point asks first, and destructors in a child do nothing.
//
// One page that the kernel empties in a child; no fork handler, hence nothing to unregister.
#ifndef MAINARCH_GPU_FORK_GUARD_H_
#define MAINARCH_GPU_FORK_GUARD_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::gpu {

class ForkGuard {
 public:
  static StatusOr<std::unique_ptr<ForkGuard>> Create(kfd::Sys& sys);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool in_opener() const { return *word_ == kAlive; }
  Status Check() const;

 private:
  static constexpr uint64_t kAlive = 0x6d61696e61726368;
  explicit ForkGuard(kfd::Sys& sys) : sys_(sys) {}

  kfd::Sys& sys_;
  const volatile uint64_t* word_ = nullptr;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_FORK_GUARD_H_
