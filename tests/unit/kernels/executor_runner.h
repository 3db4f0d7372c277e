// SPDX-License-Identifier: MIT
//
// A Runner straight on an sim::Executor: no queues, no driver. Every buffer is a mapping of its own
// exact size with nothing round it, so that an access out of bounds faults. Devices share one
// address space, as they do on the node.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_EXECUTOR_RUNNER_H_
#define MAINARCH_TESTS_UNIT_KERNELS_EXECUTOR_RUNNER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/executor.h"
#include "unit/kernels/runner.h"

namespace mainarch::kernels_test {

struct ExecutorOptions {
  uint32_t devices = 8;
  uint64_t seed = 1;
  uint64_t slice = 5000;         // wave-instructions a turn
  uint64_t limit = 400'000'000;  // of all launches of a step; more is a hang
  uint64_t* most = nullptr;      // becomes what the longest step has taken, in whole slices, if that is more
  // Told where an object has been placed.
  std::function<void(uint64_t base, uint64_t end, absl::Span<const uint8_t> object)> loaded;
  // Told of every mapping; cached: stores to it need a write-back, loads an invalidate.
  std::function<void(uint64_t begin, uint64_t end, bool cached)> mapped;
};

class ExecutorRunner : public Runner {
 public:
  static StatusOr<std::unique_ptr<ExecutorRunner>> Create(std::unique_ptr<sim::Executor> executor,
                                                          const std::string& isa,
                                                          const ExecutorOptions& options);
  ~ExecutorRunner() override;

  std::string isa() const override { return isa_; }
  uint32_t devices() const override { return static_cast<uint32_t>(contexts_.size()); }
  StatusOr<uint64_t> Allocate(uint32_t device, Home home, size_t bytes) override;
  Status Write(uint64_t address, absl::Span<const uint8_t> bytes) override;
  Status Read(uint64_t address, absl::Span<uint8_t> bytes) override;
  Status Launch(absl::Span<const LaunchRequest> together) override;

 private:
  struct Mapping;
  class Context;
  struct Loaded;

  ExecutorRunner() = default;
  StatusOr<uint64_t> Map(uint32_t device, Home home, size_t bytes, bool executable);
  const Mapping* Find(uint64_t address) const;
  StatusOr<const Loaded*> Load(const LaunchRequest& request);
  StatusOr<sim::Dispatch> Prepare(const LaunchRequest& request);

  std::string isa_;
  ExecutorOptions options_;
  std::unique_ptr<sim::Executor> executor_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::map<uint64_t, Mapping> mappings_;  // by end address
  std::map<const uint8_t*, std::vector<Loaded>> loaded_;
  uint64_t next_ = 0x700000000000;
  uint64_t epoch_ = 1;
  uint64_t clock_ = 0;
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_EXECUTOR_RUNNER_H_
