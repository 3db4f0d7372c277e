// SPDX-License-Identifier: MIT
//
// Ranks that are threads of this process, each with a vector and a SharedSum. The host thread wakes
// them, and sleeps until all are done: only what happens between is the collective.
#ifndef MAINARCH_CLI_COLL_CPU_RANKS_H_
#define MAINARCH_CLI_COLL_CPU_RANKS_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "cli/coll/ranks.h"
#include "cli/coll/shared_sum.h"

namespace mainarch::coll {

class CpuRanks final : public Ranks {
 public:
  static StatusOr<std::unique_ptr<Ranks>> Create(int32_t ranks, size_t max_count,
                                                 uint32_t timeout_ms);
  ~CpuRanks() override;

  int32_t ranks() const override { return ranks_; }
  size_t max_count() const override { return max_count_; }
  absl::Span<float> data(int32_t rank) override {
    return absl::MakeSpan(vectors_[static_cast<size_t>(rank)]);
  }
  StatusOr<Counts> AllReduce(size_t count, Algorithm algorithm) override;

 private:
  CpuRanks(int32_t ranks, size_t max_count, uint32_t timeout_ms);
  void Work(int32_t rank);

  const int32_t ranks_;
  const size_t max_count_;
  const uint32_t timeout_ms_;
  Mapping memory_;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  uint64_t round_ = 0;  // asked for
  int32_t busy_ = 0;
  size_t count_ = 0;
  bool two_shot_ = false;
  bool stop_ = false;
  Status status_;
};

}  // namespace mainarch::coll

#endif  // MAINARCH_CLI_COLL_CPU_RANKS_H_
