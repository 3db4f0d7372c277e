// SPDX-License-Identifier: MIT
#include "base/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/clock.h"
#include "base/signal_block.h"

namespace mainarch {
namespace {

// A handoff between cores takes 0.05 to 0.5 us; a futex wake some 10 us. Spin for about as long as
// the longest gap inside a step, then sleep.
constexpr int kSpinsBeforeClock = 64;
constexpr int64_t kSpinNs = 50'000;

// A microsecond or two: the end of a phase of some microseconds, and nothing of a long one.
constexpr int kSpinsBeforeStealing = 100;

// A share that nobody has touched for so many phases is marked, long before numbers wrap round.
constexpr int32_t kStalePhases = 1 << 28;

uint32_t SequenceOf(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t ItemsOf(uint64_t word) { return static_cast<uint32_t>(word >> 32 & 0xffff); }
uint32_t ActiveOf(uint64_t word) { return static_cast<uint32_t>(word >> 48); }
uint64_t PhaseWord(uint32_t sequence, uint32_t items, int active) {
  return static_cast<uint64_t>(active) << 48 | static_cast<uint64_t>(items) << 32 | sequence;
}

// Ticket: sequence (32) | next (16) | end (16).
uint64_t TicketWord(uint32_t sequence, uint32_t next, uint32_t end) {
  return static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(next) << 16 | end;
}

int64_t ReadClock(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // yield ends at once on most of them
#endif
}

// The low half of the word is the first four bytes: x86 and arm64 are little-endian.
uint32_t* FutexOf(std::atomic<uint64_t>* word) { return reinterpret_cast<uint32_t*>(word); }
uint32_t* FutexOf(std::atomic<int>* word) { return reinterpret_cast<uint32_t*>(word); }

void FutexWait(uint32_t* word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void FutexWakeAll(uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

Team::Team(int workers)
    : workers_(workers),
      pid_(getpid()),
      active_(workers),
      shared_(static_cast<size_t>(workers)),
      strength_(workers) {}

StatusOr<std::unique_ptr<Team>> Team::Create(int workers) {
  if (workers < 1 || workers > kMaxWorkers) {
    return Error(Code::kInvalidArgument, "a team of ", workers, " threads: 1 to ", kMaxWorkers);
  }
  std::unique_ptr<Team> team(new Team(workers));
  const SignalBlock blocked;
  try {
    for (int worker = 1; worker < workers; ++worker) {
      team->threads_.emplace_back([raw = team.get(), worker] { raw->Loop(worker); });
      Worker& shared = team->shared_[static_cast<size_t>(worker)];
      // Cannot fail for a thread that has not been joined.
      pthread_getcpuclockid(team->threads_.back().native_handle(), &shared.cpu_clock);
    }
  } catch (const std::system_error& error) {
    return ErrnoError(Code::kOutOfHostMemory, error.code().value(), "start thread ",
                      team->threads_.size() + 2, " of ", workers);
  }
  return team;
}

Team::~Team() {
  if (getpid() != pid_) {
    // A forked child has no such threads; joining would wait for ever.
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  quit_.store(true, std::memory_order_relaxed);
  const uint64_t word = phase_.load(std::memory_order_relaxed);
  phase_.store(PhaseWord(SequenceOf(word) + 1, 0, workers_), std::memory_order_seq_cst);
  WakeSleepers();
  SetActive(workers_);
  for (std::thread& thread : threads_) thread.join();
}

void Team::Execute(Job* job, int most) {
  std::lock_guard<std::mutex> lock(execute_mutex_);
  job_ = job;
  job_phase_ = UINT32_MAX;  // OpenNext counts up to 0
  if (workers_ == 1) {
    OpenNext(0);
    return;
  }
  BeginJob(most);
  OpenNext(0);
  uint64_t word = phase_.load(std::memory_order_acquire);
  while (ItemsOf(word) != 0) {
    Take(word, 0);
    word = WaitForChange(word, 0);
  }
  EndJob();
}

void Team::Loop(int worker) {
  uint64_t word = phase_.load(std::memory_order_acquire);
  while (!quit_.load(std::memory_order_relaxed)) {
    if (worker >= active_.load(std::memory_order_acquire)) {
      Park(worker);
      word = phase_.load(std::memory_order_acquire);
      continue;
    }
    if (ItemsOf(word) != 0) Take(word, worker);
    word = WaitForChange(word, worker);
  }
}

void Team::Take(uint64_t word, int worker) {
  if (TakeFrom(word, worker, worker)) return;
  // A look at another's share takes that cache line from it, which costs both as much as a short
  // phase.
  for (int spins = 0; spins < kSpinsBeforeStealing; ++spins) {
    if (phase_.load(std::memory_order_acquire) != word) return;
    Pause();
  }
  for (int i = 1; i < workers_; ++i) {
    const int owner = worker + i < workers_ ? worker + i : worker + i - workers_;
    if (TakeFrom(word, owner, worker)) return;
  }
}

// Runs what is left of one share; true if that was the end of the phase, and the next one is open.
bool Team::TakeFrom(uint64_t word, int owner, int worker) {
  uint32_t done = 0, item;
  while (Claim(word, owner, &item)) {
    // A claim succeeds only while the phase is open, so job_ and job_phase_ are those of `word`.
    job_->Run(job_phase_, item, worker);
    ++done;
  }
  // Told once, not an item at a time: the counter's cache line goes round all workers.
  if (done == 0 || remaining_.fetch_sub(done, std::memory_order_acq_rel) != done) return false;
  OpenNext(worker);
  return true;
}

bool Team::Claim(uint64_t word, int owner, uint32_t* item) {
  const uint32_t sequence = SequenceOf(word);
  const uint64_t items = ItemsOf(word);
  std::atomic<uint64_t>& ticket = shared_[static_cast<size_t>(owner)].ticket;
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (true) {
    const int32_t age = static_cast<int32_t>(static_cast<uint32_t>(seen >> 32) - sequence);
    if (age > 0) return false;  // the phase is over
    uint32_t next = static_cast<uint32_t>(seen >> 16 & 0xffff);
    uint32_t end = static_cast<uint32_t>(seen & 0xffff);
    if (age < 0) {  // nobody has taken of this share in this phase
      const uint64_t active = ActiveOf(word);
      const uint64_t share = std::min(static_cast<uint64_t>(owner), active);
      const uint64_t share_end = std::min(static_cast<uint64_t>(owner) + 1, active);
      next = static_cast<uint32_t>(items * share / active);
      end = static_cast<uint32_t>(items * share_end / active);
    }
    if (next == end) {
      // Who comes late finds the same: an empty share stays empty, another one was taken from.
      if (age > -kStalePhases) return false;
      if (ticket.compare_exchange_weak(seen, TicketWord(sequence, next, end),
                                       std::memory_order_acq_rel)) {
        return false;
      }
      continue;
    }
    if (ticket.compare_exchange_weak(seen, TicketWord(sequence, next + 1, end),
                                     std::memory_order_acq_rel)) {
      *item = next;
      return true;
    }
  }
}

// Runs on one worker while no item of the job is running or can be claimed: the last phase is over
// and every share of it is used up. Phases that are no use to others are run here and now.
void Team::OpenNext(int worker) {
  const int active = active_.load(std::memory_order_relaxed);
  uint32_t items;
  while (true) {
    items = job_->Open(++job_phase_);
    if (items == Job::kEnd) {
      items = 0;
      break;
    }
    if (items > 1 && active > 1) break;
    for (uint32_t item = 0; item < items; ++item) job_->Run(job_phase_, item, worker);
  }
  const uint64_t word = phase_.load(std::memory_order_relaxed);
  if (items == 0 && ItemsOf(word) == 0) return;  // nobody was told of this job
  remaining_.store(items, std::memory_order_relaxed);
  // seq_cst here and in WaitForChange: either the sleeper sees the new word or we see the sleeper.
  phase_.store(PhaseWord(SequenceOf(word) + 1, items, active), std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) WakeSleepers();
}

uint64_t Team::WaitForChange(uint64_t seen, int worker) {
  Worker& shared = shared_[static_cast<size_t>(worker)];
  int spins = 0;
  int64_t give_up = 0;
  while (true) {
    const uint64_t word = phase_.load(std::memory_order_acquire);
    if (word != seen) return word;
    Pause();
    if (++spins < kSpinsBeforeClock) continue;
    spins = 0;
    const int64_t now = NowNs();
    if (give_up == 0) give_up = now + kSpinNs;
    if (now < give_up) continue;
    shared.sleeps_since.store(now, std::memory_order_relaxed);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (phase_.load(std::memory_order_seq_cst) == seen) {
      FutexWait(FutexOf(&phase_), SequenceOf(seen));
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    // The sum first: a reader between the two takes some for lost that was not, once.
    shared.sleeps_since.store(0, std::memory_order_relaxed);
    shared.slept_ns.fetch_add(NowNs() - now, std::memory_order_relaxed);
    give_up = 0;
  }
}

// Sleeps while there are enough others. Nobody waits for a parked worker: it has no share.
void Team::Park(int worker) {
  int active = active_.load(std::memory_order_acquire);
  while (active <= worker && !quit_.load(std::memory_order_relaxed)) {
    FutexWait(FutexOf(&active_), static_cast<uint32_t>(active));
    active = active_.load(std::memory_order_acquire);
  }
}

void Team::Limit(int workers) {
  std::lock_guard<std::mutex> lock(execute_mutex_);
  strength_ = Strength(std::clamp(workers, 1, workers_));
  window_start_ns_ = 0;
  SetActive(strength_.active());
}

void Team::WakeSleepers() { FutexWakeAll(FutexOf(&phase_)); }

void Team::SetActive(int active) {
  const int before = active_.exchange(active, std::memory_order_acq_rel);
  if (active > before) FutexWakeAll(FutexOf(&active_));
}

int64_t Team::SleptNs(const Worker& worker, int64_t now) const {
  const int64_t since = worker.sleeps_since.load(std::memory_order_relaxed);
  return worker.slept_ns.load(std::memory_order_relaxed) + (since == 0 ? 0 : now - since);
}

void Team::StartWindow(int64_t now) {
  window_start_ns_ = now;
  caller_lost_ns_ = 0;
  for (int i = 0; i < active(); ++i) {
    Worker& worker = shared_[static_cast<size_t>(i)];
    if (i > 0) worker.window_cpu_ns = ReadClock(worker.cpu_clock);
    worker.window_slept_ns = SleptNs(worker, now);
  }
}

void Team::BeginJob(int most) {
  job_start_ns_ = NowNs();
  strength_.Resume(job_start_ns_);
  const int wanted = std::max(1, std::min(strength_.active(), most));
  if (wanted != active()) {
    SetActive(wanted);
    window_start_ns_ = 0;
  }
  if (active() == 1) return;
  // A window is of work: a long rest between jobs is no part of it.
  if (window_start_ns_ == 0 || job_start_ns_ - window_start_ns_ > 4 * Strength::kWindowNs) {
    StartWindow(job_start_ns_);
  }
  job_start_cpu_ns_ = ReadClock(CLOCK_THREAD_CPUTIME_ID);
}

void Team::EndJob() {
  if (active() == 1) return;
  const int64_t now = NowNs();
  const int64_t cpu = ReadClock(CLOCK_THREAD_CPUTIME_ID) - job_start_cpu_ns_;
  caller_lost_ns_ += now - job_start_ns_ - cpu;
  const int64_t window = now - window_start_ns_;
  if (window < Strength::kWindowNs) return;
  int losers = 0;
  for (int i = 0; i < active(); ++i) {
    const Worker& worker = shared_[static_cast<size_t>(i)];
    const int64_t slept = SleptNs(worker, now) - worker.window_slept_ns;
    // The caller's time between jobs is its own; the others do nothing but work, spin and sleep.
    const int64_t off =
        i == 0 ? caller_lost_ns_ : window - (ReadClock(worker.cpu_clock) - worker.window_cpu_ns);
    losers += Strength::Lost(window, off - slept);
  }
  // Who is too many stops with the next job, which begins a window then.
  strength_.Report(now, losers);
  StartWindow(now);
}

}  // namespace mainarch
