// SPDX-License-Identifier: MIT
//
// A team of threads that runs jobs made of phases made of items. Phases run one after another; the
// items of a phase run on whichever workers are free. The caller is worker 0, so a team of one has
// no threads at all.
//
// There is no barrier at which all must arrive: a phase is over when its items are done, and the
// worker that finished the last one opens the next. A worker that the kernel has descheduled between
// items therefore holds nobody up; its share is taken by the others. Results must not depend on who
// runs an item.
//
// Waiting spins for a while and then sleeps on a futex. Nothing here allocates after Create.
#ifndef MAINARCH_BASE_TEAM_H_
#define MAINARCH_BASE_TEAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace mainarch {

class Team {
 public:
  static constexpr uint32_t kMaxItems = 65535;

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

  // Runs a whole job. Calls from several threads run one after another.
  void Execute(Job* job);

 private:
  // Items [next, end) of one worker's share, tagged with the phase they belong to.
  struct alignas(64) Ticket {
    std::atomic<uint64_t> word{0};
  };

  explicit Team(int workers);

  void Loop(int worker);
  // Works on phase `word` until none of its items is left to take.
  void Take(uint64_t word, int worker);
  bool Claim(uint64_t word, int owner, uint32_t* item);
  void OpenNext();
  uint64_t WaitForChange(uint64_t seen);
  void WakeSleepers();

  const int workers_;
  const int pid_;  // of the process that has the threads
  // sequence number of the open phase (low half, the futex) and its number of items (high half;
  // 0 when nothing is open).
  alignas(64) std::atomic<uint64_t> phase_{0};
  alignas(64) std::atomic<uint32_t> remaining_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> quit_{false};
  std::vector<Ticket> tickets_;
  // Written only while no phase is open, or by the worker that opens the next.
  Job* job_ = nullptr;
  uint32_t job_phase_ = 0;
  std::mutex execute_mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace mainarch

#endif  // MAINARCH_BASE_TEAM_H_
