// SPDX-License-Identifier: MIT
//
// The all-reduce of CPU ranks: threads or processes that share a piece of memory and nothing else.
// No lock, no system call while the others keep up: a rank copies its vector into its own slot,
// says so in its own cache line, and reads the others'.
//
//   up to 280 bytes  in up to five cache lines, each with a sequence number of its own: they travel
//                    at the same time, so that it takes little more than one handoff
//   more             in pieces of 2 to 8 KiB, each read while the next is written
//   two shots        from 64 KiB on: each rank adds its share of the vector and publishes that
//
// Slots are double buffered: a rank that publishes number e + 2 has seen everybody's e + 1, which
// is published after e was read.
//
// Owner: the memory outlives every SharedSum on it. Threads: one SharedSum a rank, used by one
// thread; ranks run at the same time.
#ifndef MAINARCH_CLI_COLL_SHARED_SUM_H_
#define MAINARCH_CLI_COLL_SHARED_SUM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace mainarch::coll {

class SharedSum {
 public:
  static constexpr int32_t kMaxRanks = 8;
  static constexpr size_t kTwoShotBytes = 64 << 10;

  // Bytes of memory that a group needs: zeroed, 64-byte aligned, mapped by all ranks.
  static size_t MemoryBytes(int32_t ranks, size_t max_count);

  SharedSum(void* memory, int32_t ranks, int32_t rank, size_t max_count);

  // out[i] = sum over ranks of their in[i]; every rank calls with the same count <= max_count.
  // TimedOut names the rank that did not come by `deadline_ns` (NowNs); the group is of no use
  // then.
  Status AllReduce(const float* in, float* out, size_t count, int64_t deadline_ns,
                   bool two_shot = false);
  static bool TakesTwoShots(int32_t ranks, size_t count) {
    return ranks >= 2 && count * sizeof(float) >= kTwoShotBytes;
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kInLine = 14;       // floats beside a sequence number
  static constexpr size_t kMostLines = 5;     // beyond which a flag behind the data is as good
  static constexpr size_t kMostPiece = 2048;  // floats
  // Of a vector of so many: small enough to overlap, large enough not to be all counting.
  static constexpr size_t PieceOf(size_t count) {
    return count <= 1024 ? 512 : count <= 16384 ? 1024 : kMostPiece;
  }

  struct alignas(kLine) Line {
    std::atomic<uint64_t> sequence;
    float data[kInLine];
  };
  // Of one rank. `progress[r]` counts the pieces it has published for rank r, ever; in one shot all
  // of them count for rank 0.
  struct Header {
    Line lines[2][kMostLines];
    struct alignas(kLine) Count {
      std::atomic<uint64_t> pieces;
    };
    Count progress[kMaxRanks];
    Count shared;  // of second rounds
  };

  Header& header(int32_t rank) const;
  float* slot(int32_t rank, uint64_t number, bool sums) const;
  Status AwaitAtLeast(const std::atomic<uint64_t>& word, uint64_t value, int32_t rank,
                      int64_t deadline_ns) const;
  Status AwaitLines(const Line* lines, size_t count, uint64_t number, int32_t rank,
                    int64_t deadline_ns) const;
  Status TimedOut(int32_t rank) const;
  Status InLines(const float* in, float* out, size_t count, int64_t deadline_ns);
  Status OneShot(const float* in, float* out, size_t count, int64_t deadline_ns);
  Status TwoShots(const float* in, float* out, size_t count, int64_t deadline_ns);
  Status AddPieces(const float* in, float* out, size_t begin, size_t end, size_t piece,
                   int64_t deadline_ns);
  void Publish(const float* in, size_t begin, size_t end, size_t piece, float* to,
               std::atomic<uint64_t>& progress);

  uint8_t* const memory_;
  const int32_t ranks_, rank_;
  const size_t stride_;  // bytes of a rank's part
  const size_t slot_floats_;
  uint64_t number_ = 0;       // of all-reduces so far
  uint64_t line_number_ = 0;  // of those that went in lines
  // Pieces before this all-reduce: those that a rank published for another, and of sums.
  uint64_t published_[kMaxRanks] = {};
  uint64_t shared_[kMaxRanks] = {};
};

}  // namespace mainarch::coll

#endif  // MAINARCH_CLI_COLL_SHARED_SUM_H_
