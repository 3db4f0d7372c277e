// SPDX-License-Identifier: MIT
//
// A kernels_test::Runner through the whole driver: code objects loaded by gpu::LoadedCode,
// arguments in driver memory, AQL packets in a queue of each GPU, on a virtual node whose packet
// processors hand them to the interpreter.
#ifndef MAINARCH_TESTS_SIM_QUEUE_RUNNER_H_
#define MAINARCH_TESTS_SIM_QUEUE_RUNNER_H_

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "sim/isa/executor.h"
#include "sim/sim_sys.h"
#include "unit/kernels/runner.h"

namespace mainarch::kernels_test {

// Long enough for a virtual GPU on a busy machine under a sanitizer.
inline gpu::Deadline QueueDeadline() {
  return gpu::Deadline::In(std::getenv("MAINARCH_TEST_FULL") != nullptr ? 1'200'000 : 120'000);
}

class QueueRunner : public Runner {
 public:
  // `isa` is "gfx942" or "gfx950"; `settings` of the node go behind its name: ",seed=3".
  static StatusOr<std::unique_ptr<QueueRunner>> Create(const std::string& isa, uint32_t devices,
                                                       const sim::isa::ExecutorOptions& options,
                                                       const std::string& settings = "");
  ~QueueRunner() override;

  std::string isa() const override { return isa_; }
  uint32_t devices() const override { return static_cast<uint32_t>(queues_.size()); }
  StatusOr<uint64_t> Allocate(uint32_t device, Home home, size_t bytes) override;
  Status Write(uint64_t address, absl::Span<const uint8_t> bytes) override;
  Status Read(uint64_t address, absl::Span<uint8_t> bytes) override;
  Status Launch(absl::Span<const LaunchRequest> together) override;

  // A launch that the caller waits for: while it runs the host may write and read memory.
  struct Started {
    uint32_t device = 0;
    uint64_t point = 0;
  };
  StatusOr<Started> Start(const LaunchRequest& request);
  Status Wait(const Started& started);
  bool Done(const Started& started) { return queues_[started.device]->Reached(started.point); }
  // The host's view of a buffer's memory.
  uint8_t* Host(uint64_t address);

 private:
  QueueRunner() = default;
  StatusOr<gpu::LoadedCode*> Load(const LaunchRequest& request);
  const gpu::Buffer* Find(uint64_t address) const;

  std::string isa_;
  std::shared_ptr<sim::Node> node_;
  std::unique_ptr<sim::SimSys> sys_;
  std::unique_ptr<gpu::Process> process_;
  std::vector<gpu::Device*> devices_;
  std::vector<std::unique_ptr<gpu::Queue>> queues_;
  std::map<std::pair<const uint8_t*, uint32_t>, std::unique_ptr<gpu::LoadedCode>> code_;
  std::map<uint64_t, gpu::Buffer> buffers_;  // by address
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_SIM_QUEUE_RUNNER_H_
