// SPDX-License-Identifier: MIT
#include "base/team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

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

uint32_t SequenceOf(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t ItemsOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
uint64_t PhaseWord(uint32_t sequence, uint32_t items) {
  return static_cast<uint64_t>(items) << 32 | sequence;
}

// Ticket: sequence (32) | next (16) | end (16).
uint64_t TicketWord(uint32_t sequence, uint32_t next, uint32_t end) {
  return static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(next) << 16 | end;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The low half of the word is the first four bytes: x86 and arm64 are little-endian.
uint32_t* FutexOf(std::atomic<uint64_t>* word) { return reinterpret_cast<uint32_t*>(word); }

}  // namespace

Team::Team(int workers)
    : workers_(workers), pid_(getpid()), tickets_(static_cast<size_t>(workers)) {}

StatusOr<std::unique_ptr<Team>> Team::Create(int workers) {
  std::unique_ptr<Team> team(new Team(workers));
  const SignalBlock blocked;
  try {
    for (int worker = 1; worker < workers; ++worker) {
      team->threads_.emplace_back([raw = team.get(), worker] { raw->Loop(worker); });
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
  phase_.store(PhaseWord(SequenceOf(word) + 1, 0), std::memory_order_seq_cst);
  WakeSleepers();
  for (std::thread& thread : threads_) thread.join();
}

void Team::Execute(Job* job) {
  std::lock_guard<std::mutex> lock(execute_mutex_);
  job_ = job;
  job_phase_ = UINT32_MAX;  // OpenNext counts up to 0
  OpenNext();
  uint64_t word = phase_.load(std::memory_order_acquire);
  while (ItemsOf(word) != 0) {
    Take(word, 0);
    word = WaitForChange(word);
  }
}

void Team::Loop(int worker) {
  uint64_t word = phase_.load(std::memory_order_acquire);
  while (!quit_.load(std::memory_order_relaxed)) {
    if (ItemsOf(word) != 0) Take(word, worker);
    word = WaitForChange(word);
  }
}

void Team::Take(uint64_t word, int worker) {
  for (int i = 0; i < workers_; ++i) {
    int owner = worker + i;
    if (owner >= workers_) owner -= workers_;
    uint32_t item;
    while (Claim(word, owner, &item)) {
      // A claim succeeds only while the phase is open, so job_ and job_phase_ are those of `word`.
      job_->Run(job_phase_, item, worker);
      if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        OpenNext();
        return;
      }
    }
  }
}

bool Team::Claim(uint64_t word, int owner, uint32_t* item) {
  const uint32_t sequence = SequenceOf(word);
  const uint64_t items = ItemsOf(word);
  std::atomic<uint64_t>& ticket = tickets_[static_cast<size_t>(owner)].word;
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (true) {
    const int32_t age = static_cast<int32_t>(static_cast<uint32_t>(seen >> 32) - sequence);
    if (age > 0) return false;  // the phase is over
    uint32_t next = static_cast<uint32_t>(seen >> 16 & 0xffff);
    uint32_t end = static_cast<uint32_t>(seen & 0xffff);
    if (age < 0) {  // first to touch this share in this phase
      const uint64_t workers = static_cast<uint64_t>(workers_);
      next = static_cast<uint32_t>(items * static_cast<uint64_t>(owner) / workers);
      end = static_cast<uint32_t>(items * (static_cast<uint64_t>(owner) + 1) / workers);
    }
    if (next == end) {
      // Leave a mark in an untouched empty share, so that every share reaches this phase.
      if (age == 0 || ticket.compare_exchange_weak(seen, TicketWord(sequence, next, end),
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
// and every share of it is used up, except shares that never had an item.
void Team::OpenNext() {
  const uint32_t sequence = SequenceOf(phase_.load(std::memory_order_relaxed)) + 1;
  uint32_t items = 0;
  while (items == 0) items = job_->Open(++job_phase_);
  if (items == Job::kEnd) items = 0;
  remaining_.store(items, std::memory_order_relaxed);
  // seq_cst here and in WaitForChange: either the sleeper sees the new word or we see the sleeper.
  phase_.store(PhaseWord(sequence, items), std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) WakeSleepers();
}

uint64_t Team::WaitForChange(uint64_t seen) {
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
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (phase_.load(std::memory_order_seq_cst) == seen) {
      syscall(SYS_futex, FutexOf(&phase_), FUTEX_WAIT_PRIVATE, SequenceOf(seen), nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    give_up = 0;
  }
}

void Team::WakeSleepers() {
  syscall(SYS_futex, FutexOf(&phase_), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace mainarch
