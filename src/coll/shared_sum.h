// SPDX-License-Identifier: MIT
//
// The all-reduce of CPU ranks: threads or processes that share a piece of memory and nothing else.
// No lock, no system call while the others keep up: a rank copies its vector into its own slot,
// says so in its own cache line, and reads the others'.
//
//   up to 48 bytes   vector and sequence number travel in one cache line
//   more             in pieces of 4 KiB, each read while the next is written
//   two shots        from 4 ranks and 32 KiB on: each rank adds its share and publishes that
//
// Slots are double buffered: a rank that publishes number e + 2 has seen everybody's e + 1, which
// is published after e was read.
//
// Owner: the memory outlives every SharedSum on it. Threads: one SharedSum a rank, used by one
// thread; ranks run at the same time.
#ifndef MAINARCH_COLL_SHARED_SUM_H_
#define MAINARCH_COLL_SHARED_SUM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace mainarch::coll {

class SharedSum {
 public:
  static constexpr int32_t kMaxRanks = 8;
  static constexpr size_t kTwoShotBytes = 32 << 10;

  // Bytes of memory that a group needs: zeroed, 64-byte aligned, mapped by all ranks.
  static size_t MemoryBytes(int32_t ranks, size_t max_count);

  SharedSum(void* memory, int32_t ranks, int32_t rank, size_t max_count);

  // out[i] = sum over ranks of their in[i]; every rank calls with the same count <= max_count.
  // TimedOut names the rank that did not come by `deadline_ns` (NowNs); the group is of no use
  // then.
  Status AllReduce(const float* in, float* out, size_t count, int64_t deadline_ns,
                   bool two_shot = false);
  static bool TakesTwoShots(int32_t ranks, size_t count) {
    return ranks >= 4 && count * sizeof(float) >= kTwoShotBytes;
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kInline = 12;   // floats beside a sequence number in a line
  static constexpr size_t kPiece = 1024;  // floats

  struct alignas(kLine) Line {
    std::atomic<uint64_t> sequence;
    float data[14];
  };
  // Of one rank. `progress` counts the pieces it has published, ever.
  struct Header {
    Line small[2];
    alignas(kLine) std::atomic<uint64_t> progress;
    alignas(kLine) std::atomic<uint64_t> shared;  // pieces of second rounds
  };

  Header& header(int32_t rank) const;
  float* slot(int32_t rank, uint64_t number, bool sums) const;
  Status AwaitAtLeast(const std::atomic<uint64_t>& word, uint64_t value, int32_t rank,
                      int64_t deadline_ns) const;
  Status Small(const float* in, float* out, size_t count, int64_t deadline_ns);
  Status OneShot(const float* in, float* out, size_t count, int64_t deadline_ns);
  Status TwoShots(const float* in, float* out, size_t count, int64_t deadline_ns);
  Status AddPieces(const float* in, float* out, size_t begin, size_t end, uint64_t base,
                   int64_t deadline_ns);
  void Publish(const float* in, size_t begin, size_t end, float* to,
               std::atomic<uint64_t>& progress);

  uint8_t* const memory_;
  const int32_t ranks_, rank_;
  const size_t stride_;  // bytes of a rank's part
  const size_t slot_floats_;
  uint64_t number_ = 0;              // of all-reduces so far
  uint64_t small_number_ = 0;        // of those that went in one line
  uint64_t published_ = 0;           // pieces; the same on every rank
  uint64_t shared_[kMaxRanks] = {};  // pieces of second rounds, by owner
};

}  // namespace mainarch::coll

#endif  // MAINARCH_COLL_SHARED_SUM_H_
