// SPDX-License-Identifier: MIT
#include "base/team.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "support/test.h"

using namespace mainarch;

namespace {

// Each item adds to a plain counter of its own; the next phase checks that all items of the last
// one ran exactly once. TSan sees any hole in the ordering.
class CountingJob : public Team::Job {
 public:
  CountingJob(std::vector<uint32_t> items) : items_(std::move(items)) {
    for (uint32_t n : items_) counts_.emplace_back(n, 0);
  }
  uint32_t Open(uint32_t phase) override {
    if (phase > 0) Verify(phase - 1);
    return phase < items_.size() ? items_[phase] : kEnd;
  }
  void Run(uint32_t phase, uint32_t item, int worker) override {
    ++counts_[phase][item];
    if (slow_worker_ == worker) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void Verify(uint32_t phase) {
    for (int n : counts_[phase]) wrong_ += n != 1;
  }
  int wrong_ = 0;
  int slow_worker_ = -1;

 private:
  std::vector<uint32_t> items_;
  std::vector<std::vector<int>> counts_;
};

}  // namespace

TEST(every_item_runs_once_in_phase_order) {
  for (int workers : {1, 2, 3, 8}) {
    auto team = Team::Create(workers);
    CHECK_OK(team);
    for (int round = 0; round < 200; ++round) {
      CountingJob job({1, 0, 7, 100, 0, 0, 2, static_cast<uint32_t>(round), 3});
      (*team)->Execute(&job);
      CHECK_EQ(job.wrong_, 0);
    }
  }
}

TEST(largest_phase_fits) {
  auto team = Team::Create(3);
  CHECK_OK(team);
  CountingJob job({Team::kMaxItems});
  (*team)->Execute(&job);
  CHECK_EQ(job.wrong_, 0);
}

TEST(a_slow_worker_loses_its_share_but_no_item) {
  auto team = Team::Create(2);
  CHECK_OK(team);
  CountingJob job({50, 50});
  job.slow_worker_ = 1;
  (*team)->Execute(&job);
  CHECK_EQ(job.wrong_, 0);
}

TEST(sleeping_workers_wake_for_the_next_job) {
  auto team = Team::Create(4);
  CHECK_OK(team);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // past the spinning
    CountingJob job({16, 16});
    (*team)->Execute(&job);
    CHECK_EQ(job.wrong_, 0);
  }
}

TEST(callers_on_several_threads_take_turns) {
  auto team = Team::Create(2);
  CHECK_OK(team);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        CountingJob job({3, 20});
        (*team)->Execute(&job);
        wrong += job.wrong_;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(wrong.load(), 0);
}
