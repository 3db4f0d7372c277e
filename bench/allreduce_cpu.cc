// SPDX-License-Identifier: MIT
//
// The all-reduce of two CPU ranks in two processes on two cores, by size, and the handoff of a
// cache line between those cores measured in the same run. bench/allreduce prints it beside Open
// MPI's.
//   allreduce_cpu         lines "bytes median_us min_us", then "handoff_ns N"
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "cli/coll/shared_sum.h"

using mainarch::NowNs;
using mainarch::coll::SharedSum;

namespace {

constexpr size_t kMost = 1 << 18;  // floats
constexpr int kSamples = 200;
constexpr int64_t kMinute = 60'000'000'000;

struct Shared {
  alignas(64) std::atomic<uint32_t> ping;
  alignas(64) std::atomic<uint32_t> pong;
};

void Pin(int nth) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof(all), &all);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && nth-- == 0) CPU_SET(cpu, &one);
  }
  if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof(one), &one);
}

int Batch(size_t bytes) { return bytes <= 1024 ? 50 : bytes <= 65536 ? 10 : 2; }

bool Rank(int rank, void* memory, Shared* shared) {
  Pin(rank);
  SharedSum sum(memory, 2, rank, kMost);
  std::vector<float> in(kMost), out(kMost);
  for (size_t i = 0; i < kMost; ++i) in[i] = static_cast<float>((i + 1) % 1000 * (rank + 1));
  bool right = true;
  for (size_t bytes = 8; bytes <= kMost * 4; bytes *= 2) {
    std::vector<double> times;
    for (int sample = 0; sample < kSamples; ++sample) {
      const int64_t start = NowNs();
      for (int i = 0; i < Batch(bytes); ++i) {
        right &= sum.AllReduce(in.data(), out.data(), bytes / 4, start + kMinute,
                               SharedSum::TakesTwoShots(2, bytes / 4))
                     .ok();
      }
      times.push_back(static_cast<double>(NowNs() - start) / 1e3 / Batch(bytes));
    }
    for (size_t i = 0; i < bytes / 4; ++i)
      right &= out[i] == static_cast<float>((i + 1) % 1000 * 3);
    std::sort(times.begin(), times.end());
    if (rank == 0) std::printf("%zu %.3f %.3f\n", bytes, times[kSamples / 2], times[0]);
  }
  constexpr uint32_t kTurns = 100'000;
  const int64_t start = NowNs();
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    std::atomic<uint32_t>& mine = rank == 0 ? shared->ping : shared->pong;
    std::atomic<uint32_t>& theirs = rank == 0 ? shared->pong : shared->ping;
    if (rank == 0) mine.store(turn, std::memory_order_release);
    while (theirs.load(std::memory_order_acquire) < turn) __builtin_ia32_pause();
    if (rank == 1) mine.store(turn, std::memory_order_release);
  }
  if (rank == 0) {
    std::printf("handoff_ns %.1f\n", static_cast<double>(NowNs() - start) / (2.0 * kTurns));
  }
  return right;
}

}  // namespace

int main() {
  const size_t bytes = SharedSum::MemoryBytes(2, kMost);
  void* memory = mmap(nullptr, bytes + sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* shared = new (static_cast<uint8_t*>(memory) + bytes) Shared{};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) _exit(Rank(1, memory, shared) ? 0 : 1);
  const bool right = Rank(0, memory, shared);
  int status = 1;
  waitpid(child, &status, 0);
  if (!right || status != 0) std::printf("WRONG sums\n");
  return right && status == 0 ? 0 : 1;
}
