// SPDX-License-Identifier: MIT
//
// The little a kernel test needs of a machine: memory on a device, and a launch that returns when
// the kernel has ended. The interpreter, the virtual node's queues and a real GPU each implement
// it, so that the same cases run on all of them. One thread.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_RUNNER_H_
#define MAINARCH_TESTS_UNIT_KERNELS_RUNNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::kernels_test {

// Where a buffer lives: plain VRAM of its device, uncached VRAM of its device, or host memory.
enum class Home { kVram, kUncached, kHost };

struct LaunchRequest {
  absl::Span<const uint8_t> object;  // the ELF file
  std::string kernel;
  uint32_t device = 0;
  uint32_t workgroups = 1;
  uint32_t threads = 256;
  uint32_t dynamic_lds_bytes = 0;
  std::vector<uint8_t> kernarg;
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::string isa() const = 0;
  virtual uint32_t devices() const = 0;
  // 256-byte aligned; valid on every device; freed with the runner.
  virtual StatusOr<uint64_t> Allocate(uint32_t device, Home home, size_t bytes) = 0;
  virtual Status Write(uint64_t address, absl::Span<const uint8_t> bytes) = 0;
  virtual Status Read(uint64_t address, absl::Span<uint8_t> bytes) = 0;
  // All at the same time, each on its device, with release to system scope at the end.
  virtual Status Launch(absl::Span<const LaunchRequest> together) = 0;
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_RUNNER_H_
