// SPDX-License-Identifier: MIT
//
// A team of threads that runs jobs made of phases made of items. Phases run one after another; the
// items of a phase run on whichever workers are free. The caller is worker 0, so a team of one has
// no threads at all.
//
// There is no barrier at which all must arrive: a phase is over when its items are done, and the
// worker that finished the last one opens the next. A phase of one item is run by the worker that
// opens it, without telling anybody. A worker that the kernel has descheduled between items holds
// nobody up; its share is taken by the others. One that is descheduled again and again, because
// another program wants its processor, makes the team smaller for a while (base/strength.h).
// Results must not depend on who runs an item.
//
// Waiting spins for a while and then sleeps on a futex. Nothing here allocates after Create.
#ifndef MAINARCH_BASE_TEAM_H_
#define MAINARCH_BASE_TEAM_H_

#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/strength.h"

namespace mainarch {

class Team {
 public:
  static constexpr uint32_t kMaxItems = 65535;
  static constexpr int kMaxWorkers = 65535;

  // Called by workers; must not throw.
  class Job {
   public:
    virtual ~Job() = default;
    // Opens phase `phase` on one worker while all others wait: serial work may be done here.
    // Returns its number of items (<= kMaxItems; 0 skips the phase) or kEnd when there is none.
    static constexpr uint32_t kEnd = UINT32_MAX;
    virtual uint32_t Open(uint32_t phase) = 0;
    virtual void Run(uint32_t phase, uint32_t item, int worker) = 0;
  };

  static StatusOr<std::unique_ptr<Team>> Create(int workers);
  ~Team();

  int workers() const { return workers_; }
  // How many of them worked on the last job.
  int active() const { return active_.load(std::memory_order_relaxed); }
  // Works with at most so many from the next job on.
  void Limit(int workers);

  // Runs a whole job, with at most so many workers. Calls from several threads run one after another.
  void Execute(Job* job, int most = kMaxWorkers);

 private:
  // What a worker shares with others.
  struct alignas(64) Worker {
    // Items [next, end) of its share, tagged with the phase they belong to.
    std::atomic<uint64_t> ticket{0};
    // Time it slept of its own will, and since when it sleeps (0: it does not).
    alignas(64) std::atomic<int64_t> slept_ns{0};
    std::atomic<int64_t> sleeps_since{0};
    clockid_t cpu_clock = 0;
    // At the start of the window (the governor's).
    int64_t window_cpu_ns = 0;
    int64_t window_slept_ns = 0;
  };

  explicit Team(int workers);

  void Loop(int worker);
  // Works on phase `word` until none of its items is left to take.
  void Take(uint64_t word, int worker);
  bool TakeFrom(uint64_t word, int owner, int worker);
  bool Claim(uint64_t word, int owner, uint32_t* item);
  void OpenNext(int worker);
  uint64_t WaitForChange(uint64_t seen, int worker);
  void Park(int worker);
  void WakeSleepers();

  void BeginJob(int most);
  void EndJob();
  void SetActive(int active);
  void StartWindow(int64_t now);
  int64_t SleptNs(const Worker& worker, int64_t now) const;

  const int workers_;
  const int pid_;  // of the process that has the threads
  // Sequence number of the open phase (low half, the futex), its number of items (16 bits; 0 when
  // nothing is open), and how many workers have a share in it (16 bits).
  alignas(64) std::atomic<uint64_t> phase_{0};
  alignas(64) std::atomic<uint32_t> remaining_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<int> active_;  // workers from here on are parked; also a futex
  std::atomic<bool> quit_{false};
  std::vector<Worker> shared_;
  // Written only while no phase is open, or by the worker that opens the next.
  Job* job_ = nullptr;
  uint32_t job_phase_ = 0;
  // The governor, between jobs only.
  Strength strength_;
  int64_t window_start_ns_ = 0;  // 0: none has begun
  int64_t job_start_ns_ = 0;
  int64_t job_start_cpu_ns_ = 0;
  int64_t caller_lost_ns_ = 0;  // of this window
  std::mutex execute_mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace mainarch

#endif  // MAINARCH_BASE_TEAM_H_
