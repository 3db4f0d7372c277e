// SPDX-License-Identifier: MIT
#include "cli/coll/shared_sum.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "kernels/common/tree.h"

namespace mainarch::coll {
namespace {

// A handoff takes some hundred nanoseconds; after so many looks the other rank is not running, and
// may want this core.
constexpr int kLooks = 2000;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // yield ends at once on most of them
#endif
}

// Of a line at most: a call of memcpy would take as long as the copying.
void Copy(float* out, const float* in, size_t n) {
  for (; n >= 4; n -= 4, in += 4, out += 4) std::memcpy(out, in, 4 * sizeof(float));
  for (; n > 0; --n) *out++ = *in++;
}

// out[i] = the sum of from[r][i] over kRanks ranks r, in the tree; out may be one of them.
template <uint32_t kRanks>
void AddRanks(float* out, const float* const* from, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) {
    float v[kRanks];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRanks; ++r) v[r] = from[r][i];
    kernels::AddTree(v, kRanks, [](float a, float b) { return a + b; });
    out[i] = v[0];
  }
}
void AddRanks(int32_t ranks, float* out, const float* const* from, size_t n) {
  static_assert(SharedSum::kMaxRanks == 8);
  constexpr void (*kAdd[])(float*, const float* const*, size_t) = {
      AddRanks<1>, AddRanks<2>, AddRanks<3>, AddRanks<4>,
      AddRanks<5>, AddRanks<6>, AddRanks<7>, AddRanks<8>};
  kAdd[ranks - 1](out, from, n);
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
      if (word.load(std::memory_order_acquire) >= value) return OkStatus();
      Pause();
    }
    if (NowNs() > deadline_ns) return TimedOut(rank);
    sched_yield();
  }
}

Status SharedSum::TimedOut(int32_t rank) const {
  return Error(Code::kTimedOut, "all-reduce ", number_, ": rank ", rank,
               " did not come in time (rank ", rank_, " waits)");
}

Status SharedSum::AllReduce(const float* in, float* out, size_t count, int64_t deadline_ns,
                            bool two_shot) {
  if (count > slot_floats_) {
    return Error(Code::kInvalidArgument, "all-reduce of ", count, " elements; the limit is ",
                 slot_floats_);
  }
  if (count == 0) return OkStatus();
  ++number_;
  if (count <= kInLine * kMostLines) return InLines(in, out, count, deadline_ns);
  // Every rank must own something, or it would go on without having met the others.
  const bool enough = count >= static_cast<size_t>(ranks_) * PieceOf(count);
  return two_shot && enough ? TwoShots(in, out, count, deadline_ns)
                            : OneShot(in, out, count, deadline_ns);
}

// All lines are looked at in each round, so that their ways to this core overlap. None can be ahead
// of `number`: see the header.
Status SharedSum::AwaitLines(const Line* lines, size_t count, uint64_t number, int32_t rank,
                             int64_t deadline_ns) const {
  while (true) {
    for (int look = 0; look < kLooks; ++look) {
      uint64_t behind = 0;
      for (size_t i = 0; i < count; ++i) {
        behind |= lines[i].sequence.load(std::memory_order_acquire) ^ number;
      }
      if (behind == 0) return OkStatus();
      Pause();
    }
    if (NowNs() > deadline_ns) return TimedOut(rank);
    sched_yield();
  }
}

Status SharedSum::InLines(const float* in, float* out, size_t count, int64_t deadline_ns) {
  const uint64_t number = ++line_number_;
  const size_t lines = (count + kInLine - 1) / kInLine;
  Line* const mine = header(rank_).lines[number & 1];
  for (size_t i = 0; i < lines; ++i) {
    Copy(mine[i].data, in + i * kInLine, std::min(kInLine, count - i * kInLine));
    mine[i].sequence.store(number, std::memory_order_release);
  }
  for (int32_t r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const Line* const theirs = header(r).lines[number & 1];
    RETURN_IF_ERROR(AwaitLines(theirs, lines, number, r, deadline_ns));
  }
  for (size_t i = 0; i < lines; ++i) {
    const size_t n = std::min(kInLine, count - i * kInLine);
    const float* from[kMaxRanks] = {};
    for (int32_t r = 0; r < ranks_; ++r) {
      from[r] = r == rank_ ? in + i * kInLine : header(r).lines[number & 1][i].data;
    }
    AddRanks(ranks_, out + i * kInLine, from, n);
  }
  return OkStatus();
}

// Copies [begin, end) piece by piece and counts each.
void SharedSum::Publish(const float* in, size_t begin, size_t end, size_t piece, float* to,
                        std::atomic<uint64_t>& progress) {
  uint64_t done = progress.load(std::memory_order_relaxed);
  for (size_t at = begin; at < end; at += piece) {
    std::memcpy(to + at, in + at, std::min(piece, end - at) * sizeof(float));
    progress.store(++done, std::memory_order_release);
  }
}

// out[begin, end) = the ranks' sums, in the tree. What the others publish for `end - begin` is
// counted in their progress[owner].
Status SharedSum::AddPieces(const float* in, float* out, size_t begin, size_t end, size_t piece,
                            int64_t deadline_ns) {
  const int32_t owner = begin == 0 ? 0 : rank_;
  uint64_t counted = published_[owner];
  for (size_t at = begin; at < end; at += piece) {
    ++counted;
    const size_t n = std::min(piece, end - at);
    const float* from[kMaxRanks] = {};
    for (int32_t r = 0; r < ranks_; ++r) {
      from[r] = (r == rank_ ? in : slot(r, number_, false)) + at;
      if (r == rank_) continue;
      RETURN_IF_ERROR(AwaitAtLeast(header(r).progress[owner].pieces, counted, r, deadline_ns));
    }
    AddRanks(ranks_, out + at, from, n);
  }
  return OkStatus();
}

Status SharedSum::OneShot(const float* in, float* out, size_t count, int64_t deadline_ns) {
  const size_t piece = PieceOf(count);
  Publish(in, 0, count, piece, slot(rank_, number_, false), header(rank_).progress[0].pieces);
  RETURN_IF_ERROR(AddPieces(in, out, 0, count, piece, deadline_ns));
  published_[0] += (count + piece - 1) / piece;
  return OkStatus();
}

// Rank r owns the r-th of equal shares, in whole pieces. The others publish it for r alone, the
// nearest owner first, so that not all wait for the same one.
Status SharedSum::TwoShots(const float* in, float* out, size_t count, int64_t deadline_ns) {
  const size_t piece = PieceOf(count), pieces = (count + piece - 1) / piece;
  const auto begin_of = [&](int32_t r) {
    return std::min(count, pieces * static_cast<size_t>(r) / static_cast<size_t>(ranks_) * piece);
  };
  const auto pieces_of = [&](int32_t r) {
    return (begin_of(r + 1) - begin_of(r) + piece - 1) / piece;
  };
  for (int32_t i = 1; i < ranks_; ++i) {
    const int32_t to = (rank_ + i) % ranks_;
    Publish(in, begin_of(to), begin_of(to + 1), piece, slot(rank_, number_, false),
            header(rank_).progress[to].pieces);
  }
  const size_t begin = begin_of(rank_), end = begin_of(rank_ + 1);
  // Its own count rises too: all ranks' counts of an owner stay alike.
  header(rank_).progress[rank_].pieces.fetch_add(pieces_of(rank_), std::memory_order_relaxed);
  RETURN_IF_ERROR(AddPieces(in, out, begin, end, piece, deadline_ns));
  Publish(out, begin, end, piece, slot(rank_, number_, true), header(rank_).shared.pieces);
  for (int32_t i = 0; i < ranks_; ++i) {
    const int32_t r = (rank_ + i) % ranks_;
    const size_t first = begin_of(r), last = begin_of(r + 1);
    uint64_t counted = shared_[r];
    shared_[r] += pieces_of(r);
    published_[r] += pieces_of(r);
    for (size_t at = first; r != rank_ && at < last; at += piece) {
      RETURN_IF_ERROR(AwaitAtLeast(header(r).shared.pieces, ++counted, r, deadline_ns));
      std::memcpy(out + at, slot(r, number_, true) + at,
                  std::min(piece, last - at) * sizeof(float));
    }
  }
  return OkStatus();
}

}  // namespace mainarch::coll
