// SPDX-License-Identifier: MIT
#include "cli/coll/shared_sum.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/coll/ranks.h"
#include "support/gpus.h"
#include "support/test.h"

namespace mainarch::coll {
namespace {

constexpr int64_t kMinute = 60'000'000'000;

// Element i of rank r in round n: no two alike, and sums that depend on the order of adding.
float Value(int32_t r, uint64_t n, size_t i) {
  const uint64_t x = (n * 1000003 + i) * 8 + static_cast<uint64_t>(r);
  return static_cast<float>((x * 0x9e3779b97f4a7c15u) >> 40) * std::ldexp(1.0f, r % 3 * 7 - 20);
}

// Of ranks [first, first + ranks): neighbours first.
float Want(int32_t ranks, uint64_t n, size_t i, int32_t first = 0) {
  if (ranks == 1) return Value(first, n, i);
  int32_t left = 1;
  while (2 * left < ranks) left *= 2;
  return Want(left, n, i, first) + Want(ranks - left, n, i, first + left);
}

// One line and two, the most lines and the first pieces, pieces and parts of them.
const size_t kCounts[] = {1,  2,   13,   14,   15,   16,   28,   29,   69,   70,
                          71, 100, 1023, 1024, 1025, 4096, 8191, 8192, 10000};
constexpr size_t kMost = 10000;

// Every size, twice over, in both forms; counts wrong elements.
void RunRank(void* memory, int32_t ranks, int32_t rank, int* wrong) {
  SharedSum sum(memory, ranks, rank, kMost);
  std::vector<float> in(kMost), out(kMost);
  uint64_t n = 0;
  for (int turn = 0; turn < 8; ++turn) {
    for (size_t count : kCounts) {
      ++n;
      for (size_t i = 0; i < count; ++i) in[i] = Value(rank, n, i);
      float* const to = turn % 4 < 2 ? out.data() : in.data();  // in place, too
      if (!sum.AllReduce(in.data(), to, count, NowNs() + kMinute, turn % 2 == 1).ok()) {
        ++*wrong;
        return;
      }
      for (size_t i = 0; i < count; ++i) *wrong += to[i] != Want(ranks, n, i);
    }
  }
}

TEST(threads_add_up_in_the_tree) {
  for (int32_t ranks : {1, 2, 3, 4, 7, 8}) {
    auto memory = Mapping::Anonymous(SharedSum::MemoryBytes(ranks, kMost), false);
    CHECK_OK(memory);
    std::vector<int> wrong(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < ranks; ++r) {
      threads.emplace_back(RunRank, memory->data(), ranks, r, &wrong[static_cast<size_t>(r)]);
    }
    for (std::thread& thread : threads) thread.join();
    for (int each : wrong) CHECK_EQ(each, 0);
  }
}

TEST(processes_share_nothing_but_the_memory) {
  const size_t bytes = SharedSum::MemoryBytes(2, kMost);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int wrong = 0;
    RunRank(memory, 2, 1, &wrong);
    _exit(wrong == 0 ? 0 : 1);
  }
  int wrong = 0, status = -1;
  RunRank(memory, 2, 0, &wrong);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(wrong, 0);
  munmap(memory, bytes);
}

TEST(a_rank_that_does_not_come_is_named) {
  auto memory = Mapping::Anonymous(SharedSum::MemoryBytes(2, kMost), false);
  CHECK_OK(memory);
  SharedSum sum(memory->data(), 2, 0, kMost);
  std::vector<float> data(kMost);
  const Status status = sum.AllReduce(data.data(), data.data(), 5000, NowNs() + 20'000'000);
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kTimedOut));
  CHECK(std::string(status.message()).find("rank 1") != std::string::npos);
  CHECK(!sum.AllReduce(data.data(), data.data(), 20000, NowNs()).ok());
}

// CPU threads and GPUs of both chips through the one interface: every algorithm, the same bits.
TEST(groups_of_every_kind_agree) {
  constexpr size_t kCount = 5000;
  for (const char* device : {"cpu:2", "cpu:4", "sim:gfx950x2", "sim:gfx942x4", "sim:gfx950x8"}) {
    if (!test::IsHere(device)) continue;
    auto group = OpenRanks(device, kCount, 60'000);
    CHECK_OK(group);
    const int32_t ranks = (*group)->ranks();
    uint64_t n = 0;
    for (Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kEngines,
                                Algorithm::kOneShot, Algorithm::kAuto}) {
      if (algorithm == Algorithm::kEngines && device[0] == 'c') continue;
      for (size_t count : {size_t{1}, size_t{2}, size_t{257}, size_t{1024}, kCount}) {
        ++n;
        for (int32_t r = 0; r < ranks; ++r) {
          for (size_t i = 0; i < kCount; ++i) (*group)->data(r)[i] = Value(r, n, i);
        }
        const auto counts = (*group)->AllReduce(count, algorithm);
        CHECK_OK(counts);
        CHECK_LE(LeastLinkBytes(count * 4, ranks), counts->link_bytes + 64);
        for (int32_t r = 0; r < ranks; ++r) {
          for (size_t i = 0; i < kCount; ++i) {
            const float want = i < count ? Want(ranks, n, i) : Value(r, n, i);
            if ((*group)->data(r)[i] != want) {
              std::printf("# %s, %s of %zu, rank %d, element %zu\n", device,
                          std::string(NameOf(algorithm)).c_str(), count, r, i);
            }
            CHECK_EQ((*group)->data(r)[i], want);
          }
        }
      }
    }
  }
}

TEST(wrong_groups_are_named) {
  CHECK(!OpenRanks("cpu:9", 10, 1000).ok());
  CHECK(!OpenRanks("cpux", 10, 1000).ok());
  CHECK(!OpenRanks("sim:gfx950x3", 10, 1000).ok());
  auto group = OpenRanks("cpu:2", 10, 1000);
  CHECK_OK(group);
  CHECK(!(*group)->AllReduce(11, Algorithm::kAuto).ok());
  CHECK(!(*group)->AllReduce(1, Algorithm::kEngines).ok());
}

}  // namespace
}  // namespace mainarch::coll
