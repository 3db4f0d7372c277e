// SPDX-License-Identifier: MIT
//
// All checkers behind one observer. What each proves, and what it cannot, is in README.md of this
// folder. A checker belongs to a node: it outlives every launch, and what it knows of memory goes
// from one launch to the next.
//
// Threads: any; calls take one lock, so checked kernels run on one host thread at a time.
#ifndef MAINARCH_SIM_ISA_CHECK_CHECKER_H_
#define MAINARCH_SIM_ISA_CHECK_CHECKER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/executor.h"
#include "sim/isa/check/accesses.h"
#include "sim/isa/check/caches.h"
#include "sim/isa/check/effects.h"
#include "sim/isa/check/options.h"
#include "sim/isa/check/races.h"
#include "sim/isa/observer.h"

namespace mainarch::sim::isa {

// Where a kernel runs. Without a context memory is plain local memory of the GPU.
struct LaunchPlace {
  uint32_t gpu = 0, process = 0;
  const GpuContext* context = nullptr;
  uint64_t seed = 0;  // of when stores become visible
};

class LaunchWatch;

class Checker {
 public:
  explicit Checker(const CheckOptions& options);
  ~Checker();

  // The observer of one launch; the checker outlives it.
  std::unique_ptr<LaunchWatch> Watch(const LaunchPlace& place);
  // The packet processor's fences.
  void Acquire(const GpuContext& context, Scope scope);
  void Release(const GpuContext& context, Scope scope);
  // What is no finding and worth a look; each is said once.
  std::vector<std::string> TakeNotes();

 private:
  friend class LaunchWatch;
  struct GroupState;
  std::string Look(Wave& w, const Op& op, GroupState& state);

  const CheckOptions options_;
  const EffectsTable table_;
  std::mutex mutex_;
  RaceCheck races_;
  std::vector<std::string> notes_;
  std::set<uint32_t> noted_;  // pcs
  std::mutex cache_mutex_;
  CacheModel caches_;
};

class LaunchWatch : public Observer {
 public:
  LaunchWatch(Checker* checker, uint32_t launch, std::unique_ptr<CachedLaunch> cached)
      : checker_(*checker), launch_(launch), cached_(std::move(cached)) {}
  ~LaunchWatch() override { End(); }

  void Begin(Workgroup& group) override;
  bool Before(Wave& w, const Op& op) override;
  void After(Wave& w, const Op& op) override;
  void Barrier(Workgroup& group) override;
  // Every wave has ended, or none will go on. Before the packet processor's release.
  void End();

 private:
  Checker& checker_;
  const uint32_t launch_;
  const std::unique_ptr<CachedLaunch> cached_;  // null without the cache mode
  bool ended_ = false;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_CHECKER_H_
