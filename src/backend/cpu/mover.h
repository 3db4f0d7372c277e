// SPDX-License-Identifier: MIT
//
// Moves a model's weights from the mapped files into panels, behind steps that meanwhile pack what
// they need out of the files: same bytes, so same bits, wherever a step finds a weight. One thread
// of low priority, which stops soon when it is told to. It leaves processors and memory to the first
// step, that somebody waits for, and begins when that has ended, or after a while. A weight that could not be moved stays
// where it is, and status() says why.
//
// Threads: created and destroyed by one; Begin(), done() and status() are for any.
#ifndef MAINARCH_BACKEND_CPU_MOVER_H_
#define MAINARCH_BACKEND_CPU_MOVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/cpu/pack.h"
#include "base/status.h"

namespace mainarch::cpu {

// One rank's share of one weight. `panels` say where the panels are, or will be: they hold nothing
// before `ready`.
struct RankWeight {
  std::vector<PanelPlan> plans;   // [groups]; kPanels, kGateUp; or [segments], one below the other
  std::vector<Panels> panels;     // of each plan
  bool segments = false;
  const float* vector = nullptr;  // kVector: [cols]
  std::atomic<bool> ready{false};

  uint64_t bytes() const;  // of all panels
  // Panels of a group, which all have as many; of all segments.
  int64_t GroupPanels() const;
};

// Packs the panels of one weight: panel i of `total` over all groups.
class WeightPacker {
 public:
  explicit WeightPacker(RankWeight* weight);
  int64_t panels() const { return panels_; }
  void Pack(int64_t begin, int64_t end) const;

 private:
  RankWeight* weight_;
  int64_t panels_ = 0;
};

class Mover {
 public:
  // Called on the moving thread before each weight; an error ends the moving, as a failure of the
  // system's would (tests).
  using Gate = std::function<Status(uint64_t done)>;

  // Moves `weights` in this order; they must outlive it.
  static StatusOr<std::unique_ptr<Mover>> Start(std::vector<RankWeight*> weights, Gate gate);
  ~Mover();

  uint64_t done() const { return done_.load(std::memory_order_relaxed); }  // bytes
  Status status() const;
  // Begins now, if it has not yet. Cheap: every step says it.
  void Begin() {
    if (begun_.load(std::memory_order_relaxed) == 0) BeginOnce();
  }
  // Until it has moved all, or failed.
  void Wait();

 private:
  Mover(std::vector<RankWeight*> weights, Gate gate);
  void BeginOnce();
  void AwaitBegin();
  void Run();
  Status Move(RankWeight* weight);

  const int pid_;
  const std::vector<RankWeight*> weights_;
  const Gate gate_;
  std::atomic<uint32_t> begun_{0};  // a futex
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> done_{0};
  mutable std::mutex mutex_;
  Status status_;  // guarded by mutex_
  std::thread thread_;
  std::mutex join_mutex_;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_MOVER_H_
