// SPDX-License-Identifier: MIT
#include "coll/shared_sum.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace mainarch::coll {
namespace {

// A handoff takes some hundred nanoseconds; after so many looks the other rank is not running, and
// may want this core.
constexpr int kLooks = 2000;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

void Add(float* __restrict out, const float* __restrict more, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] += more[i];
}

}  // namespace

size_t SharedSum::MemoryBytes(int32_t ranks, size_t max_count) {
  const size_t slot = RoundUp(max_count, kLine / sizeof(float));
  return static_cast<size_t>(ranks) * (sizeof(Header) + 4 * slot * sizeof(float));
}

SharedSum::SharedSum(void* memory, int32_t ranks, int32_t rank, size_t max_count)
    : memory_(static_cast<uint8_t*>(memory)),
      ranks_(ranks),
      rank_(rank),
      stride_(MemoryBytes(1, max_count)),
      slot_floats_(RoundUp(max_count, kLine / sizeof(float))) {}

SharedSum::Header& SharedSum::header(int32_t rank) const {
  return *reinterpret_cast<Header*>(memory_ + static_cast<size_t>(rank) * stride_);
}

float* SharedSum::slot(int32_t rank, uint64_t number, bool sums) const {
  uint8_t* base = memory_ + static_cast<size_t>(rank) * stride_ + sizeof(Header);
  return reinterpret_cast<float*>(base) + ((number & 1) + (sums ? 2 : 0)) * slot_floats_;
}

Status SharedSum::AwaitAtLeast(const std::atomic<uint64_t>& word, uint64_t value, int32_t rank,
                               int64_t deadline_ns) const {
  while (true) {
    for (int look = 0; look < kLooks; ++look) {
      if (word.load(std::memory_order_acquire) >= value) return absl::OkStatus();
      Pause();
    }
    if (NowNs() > deadline_ns) {
      return Error(Code::kTimedOut, "all-reduce ", number_, ": rank ", rank,
                   " did not come in time (rank ", rank_, " waits)");
    }
    sched_yield();
  }
}

Status SharedSum::AllReduce(const float* in, float* out, size_t count, int64_t deadline_ns,
                            bool two_shot) {
  if (count > slot_floats_) {
    return Error(Code::kInvalidArgument, "all-reduce of ", count, " elements; the limit is ",
                 slot_floats_);
  }
  if (count == 0) return absl::OkStatus();
  ++number_;
  if (count <= kInline) return Small(in, out, count, deadline_ns);
  // Every rank must own something, or it would go on without having met the others.
  const bool enough = count >= static_cast<size_t>(ranks_) * kPiece;
  return two_shot && enough ? TwoShots(in, out, count, deadline_ns)
                            : OneShot(in, out, count, deadline_ns);
}

Status SharedSum::Small(const float* in, float* out, size_t count, int64_t deadline_ns) {
  const uint64_t number = ++small_number_;
  Line& mine = header(rank_).small[number & 1];
  std::memcpy(mine.data, in, count * sizeof(float));
  mine.sequence.store(number, std::memory_order_release);
  float sum[kInline];
  for (int32_t r = 0; r < ranks_; ++r) {
    const Line& theirs = header(r).small[number & 1];
    RETURN_IF_ERROR(AwaitAtLeast(theirs.sequence, number, r, deadline_ns));
    if (r == 0) {
      std::memcpy(sum, theirs.data, count * sizeof(float));
    } else {
      for (size_t i = 0; i < count; ++i) sum[i] += theirs.data[i];
    }
  }
  std::memcpy(out, sum, count * sizeof(float));
  return absl::OkStatus();
}

// Copies [begin, end) piece by piece and counts each.
void SharedSum::Publish(const float* in, size_t begin, size_t end, float* to,
                        std::atomic<uint64_t>& progress) {
  uint64_t done = progress.load(std::memory_order_relaxed);
  for (size_t at = begin; at < end; at += kPiece) {
    std::memcpy(to + at, in + at, std::min(kPiece, end - at) * sizeof(float));
    progress.store(++done, std::memory_order_release);
  }
}

// out[begin, end) = the ranks' sums, in rank order. Piece i of the vector is the (base + i + 1)-th
// that each rank publishes.
Status SharedSum::AddPieces(const float* in, float* out, size_t begin, size_t end, uint64_t base,
                            int64_t deadline_ns) {
  float sum[kPiece];
  for (size_t at = begin; at < end; at += kPiece) {
    const size_t n = std::min(kPiece, end - at);
    for (int32_t r = 0; r < ranks_; ++r) {
      const float* from = r == rank_ ? in : slot(r, number_, false);
      if (r != rank_) {
        RETURN_IF_ERROR(AwaitAtLeast(header(r).progress, base + at / kPiece + 1, r, deadline_ns));
      }
      if (r == 0) {
        std::memcpy(sum, from + at, n * sizeof(float));
      } else {
        Add(sum, from + at, n);
      }
    }
    std::memcpy(out + at, sum, n * sizeof(float));
  }
  return absl::OkStatus();
}

Status SharedSum::OneShot(const float* in, float* out, size_t count, int64_t deadline_ns) {
  const uint64_t base = published_;
  published_ += (count + kPiece - 1) / kPiece;
  Publish(in, 0, count, slot(rank_, number_, false), header(rank_).progress);
  return AddPieces(in, out, 0, count, base, deadline_ns);
}

// Rank r owns the r-th of equal shares, in whole pieces.
Status SharedSum::TwoShots(const float* in, float* out, size_t count, int64_t deadline_ns) {
  const size_t pieces = (count + kPiece - 1) / kPiece;
  const auto begin_of = [&](int32_t r) {
    return std::min(count, pieces * static_cast<size_t>(r) / static_cast<size_t>(ranks_) * kPiece);
  };
  const uint64_t base = published_;
  published_ += pieces;
  Publish(in, 0, count, slot(rank_, number_, false), header(rank_).progress);
  const size_t begin = begin_of(rank_), end = begin_of(rank_ + 1);
  RETURN_IF_ERROR(AddPieces(in, out, begin, end, base, deadline_ns));
  Publish(out, begin, end, slot(rank_, number_, true), header(rank_).shared);
  for (int32_t r = 0; r < ranks_; ++r) {
    const size_t first = begin_of(r), last = begin_of(r + 1);
    const uint64_t before = shared_[r];
    shared_[r] += (last - first + kPiece - 1) / kPiece;
    if (r == rank_ || first == last) continue;
    RETURN_IF_ERROR(AwaitAtLeast(header(r).shared, before + (last - first + kPiece - 1) / kPiece, r,
                                 deadline_ns));
    std::memcpy(out + first, slot(r, number_, true) + first, (last - first) * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace mainarch::coll
