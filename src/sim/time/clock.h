// SPDX-License-Identifier: MIT
//
// The timing model of a node: hand one to ExecutorOptions::pace (or to KernelLaunch::pace for a
// grid without a node), run launches, take their reports.
//
//   auto clock = std::make_shared<timing::Clock>(timing::ClockOptions{});
//   options.pace = clock;                      // sim::isa::ExecutorOptions
//   … run …
//   for (const timing::LaunchReport& r : clock->Take()) …
//
// Caches stay warm from launch to launch, as on a chip. A GPU's clock moves only while it works: the
// time that a host takes between two packets is a parameter (handoff_ns), not the host's own.
// Same inputs, same cycles, whatever the host's threads do.
//
// Threads: a clock is driven by one thread at a time (a node with a clock runs on one machine
// thread); Take may be called from another.
#ifndef MAINARCH_SIM_TIME_CLOCK_H_
#define MAINARCH_SIM_TIME_CLOCK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sim/executor.h"
#include "sim/isa/decode.h"
#include "sim/isa/pace.h"
#include "sim/time/frames.h"
#include "sim/time/params.h"
#include "sim/time/report.h"

namespace mainarch::sim::timing {

struct ClockOptions {
  // Over the chip's own, by name: {"hbm_latency_ns", 500}. Clock::Check refuses names nobody knows.
  std::vector<std::pair<std::string, double>> params;
  bool reports = true;     // kept for Take and TakeCopies; false where nobody takes them
  bool spans = false;      // LaunchReport::spans
  bool waits = true;       // LaunchReport::waits
  size_t most_waits = 400;  // the longest so many
};

class Gpu;

class Clock : public isa::Pace {
 public:
  explicit Clock(const ClockOptions& options = {});
  ~Clock() override;

  // What is wrong with the options for a chip; OK otherwise.
  static Status Check(const ClockOptions& options, isa::Isa isa);

  std::unique_ptr<isa::PacedGrid> Begin(isa::Grid* grid) override;

  // Reports of the launches and copies that have ended since the last call, in the order of their
  // ends on each GPU.
  std::vector<LaunchReport> Take();
  std::vector<CopyReport> TakeCopies();

  // Empties every cache of a GPU, as if the chip had just been switched on: cold measurements.
  void Flush(uint32_t gpu);
  // Modelled time of a GPU so far.
  double NowUs(uint32_t gpu);
  // 100 MHz ticks of that, for s_memrealtime and profiling timestamps.
  uint64_t Ticks(uint32_t gpu);

  // What a copy engine does goes into TakeCopies; a GPU that has launched nothing yet has no clock.
  static constexpr uint32_t kHost = ~uint32_t{0};
  void Copied(uint32_t gpu, uint32_t queue, uint32_t from, uint32_t to, uint64_t bytes) override;

 private:
  friend class Gpu;
  void Add(LaunchReport report);
  int64_t Others(const Gpu& self, bool* alone) const;
  // The GPU of an index; `otherwise` where none has launched anything yet.
  Gpu* GpuAt(uint32_t gpu, Gpu* otherwise);
  // A job's stores to peers become visible, or are dropped.
  void LandAll(const class Job* job);
  void Forget(const class Job* job);

  const ClockOptions options_;
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Gpu>> gpus_;
  Frames frames_;  // of all GPUs: they have one address space
  std::vector<LaunchReport> reports_;
  std::vector<CopyReport> copies_;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_CLOCK_H_
