// SPDX-License-Identifier: MIT
#include "cli/coll/cpu_ranks.h"

#include <system_error>

#include "base/clock.h"
#include "base/signal_block.h"

namespace mainarch::coll {

CpuRanks::CpuRanks(int32_t ranks, size_t max_count, uint32_t timeout_ms)
    : ranks_(ranks), max_count_(max_count), timeout_ms_(timeout_ms) {
  for (int32_t r = 0; r < ranks; ++r) vectors_.emplace_back(max_count);
  threads_.reserve(static_cast<size_t>(ranks));
}

StatusOr<std::unique_ptr<Ranks>> CpuRanks::Create(int32_t ranks, size_t max_count,
                                                  uint32_t timeout_ms) {
  if (ranks < 1 || ranks > SharedSum::kMaxRanks) {
    return Error(Code::kInvalidArgument, ranks, " ranks: expected 1 to ", SharedSum::kMaxRanks);
  }
  std::unique_ptr<CpuRanks> group(new CpuRanks(ranks, max_count, timeout_ms));
  ASSIGN_OR_RETURN(group->memory_,
                   Mapping::Anonymous(SharedSum::MemoryBytes(ranks, max_count), false));
  const SignalBlock no_signals;
  try {
    for (int32_t r = 0; r < ranks; ++r) {
      group->threads_.emplace_back([raw = group.get(), r] { raw->Work(r); });
    }
  } catch (const std::system_error& error) {
    return ErrnoError(Code::kOutOfHostMemory, error.code().value(), "starting rank ",
                      group->threads_.size());
  }
  return std::unique_ptr<Ranks>(std::move(group));
}

CpuRanks::~CpuRanks() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CpuRanks::Work(int32_t rank) {
  SharedSum sum(memory_.data(), ranks_, rank, max_count_);
  float* const data = vectors_[static_cast<size_t>(rank)].data();
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const size_t count = count_;
    const bool two_shot = two_shot_;
    lock.unlock();
    const Status status =
        sum.AllReduce(data, data, count, NowNs() + int64_t{timeout_ms_} * 1'000'000, two_shot);
    lock.lock();
    if (status_.ok()) status_ = status;
    if (--busy_ == 0) changed_.notify_all();
  }
}

StatusOr<Counts> CpuRanks::AllReduce(size_t count, Algorithm algorithm) {
  if (algorithm == Algorithm::kEngines) {
    return Error(Code::kUnsupported, "CPU ranks have no copy engines");
  }
  if (count > max_count_) {
    return Error(Code::kInvalidArgument, "all-reduce of ", count, " elements; the limit is ",
                 max_count_);
  }
  const bool two_shot = algorithm == Algorithm::kTwoShot ||
                        (algorithm == Algorithm::kAuto && SharedSum::TakesTwoShots(ranks_, count));
  std::unique_lock<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(status_);
  count_ = count;
  two_shot_ = two_shot;
  busy_ = ranks_;
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
  RETURN_IF_ERROR(status_);
  Counts counts;
  counts.algorithm = two_shot ? Algorithm::kTwoShot : Algorithm::kOneShot;
  counts.rounds = ranks_ == 1 ? 0 : two_shot ? 2 : 1;
  counts.handoffs = 1;
  // What the others read of this rank's slots.
  const uint64_t bytes = count * sizeof(float), n = static_cast<uint64_t>(ranks_);
  counts.link_bytes = two_shot ? 2 * bytes * (n - 1) / n : bytes * (n - 1);
  return counts;
}

}  // namespace mainarch::coll
