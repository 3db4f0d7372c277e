// SPDX-License-Identifier: MIT
#include "base/team.h"

#include <algorithm>
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
    int most = most_worker_.load();
    while (worker > most && !most_worker_.compare_exchange_weak(most, worker)) {
    }
    if (slow_worker_ == worker) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void Verify(uint32_t phase) {
    for (int n : counts_[phase]) wrong_ += n != 1;
  }
  int wrong_ = 0;
  int slow_worker_ = -1;
  std::atomic<int> most_worker_{0};

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

TEST(a_limited_team_runs_all_items) {
  auto team = Team::Create(4);
  CHECK_OK(team);
  for (int round = 0; round < 40; ++round) {
    const int limit = round % 4 + 1;
    (*team)->Limit(limit);
    CHECK_EQ((*team)->active(), limit);
    CountingJob job({1, 16, 1, 1, 7, 0, 100});
    (*team)->Execute(&job);
    CHECK_EQ(job.wrong_, 0);
    CHECK(job.most_worker_ < limit);
    if (round % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  (*team)->Limit(99);
  CHECK_EQ((*team)->active(), 4);
  (*team)->Limit(2);  // destroyed with workers parked
}

// A job may want fewer: the others are parked, and are there again for the next.
TEST(a_job_has_at_most_the_workers_that_it_wants) {
  class Count : public Team::Job {
   public:
    uint32_t Open(uint32_t phase) override { return phase == 3 ? kEnd : 200; }
    void Run(uint32_t, uint32_t, int worker) override {
      ++items_;
      int seen = most_.load();
      while (seen < worker && !most_.compare_exchange_weak(seen, worker)) {
      }
    }
    std::atomic<int> items_{0}, most_{0};
  };
  auto team = Team::Create(5);
  CHECK_OK(team);
  for (const int most : {5, 2, 1, 3, 0, 99}) {
    for (int round = 0; round < 20; ++round) {
      Count job;
      (*team)->Execute(&job, most);
      CHECK_EQ(job.items_.load(), 600);
      CHECK_LE(job.most_.load(), std::max(most, 1) - 1);
      CHECK_LE((*team)->active(), std::max(most, 1));
    }
  }
}

// A phase of one item runs on the worker that opened it: no other is told, so none can run it.
TEST(a_phase_of_one_item_stays_where_it_was_opened) {
  class Chain : public Team::Job {
   public:
    uint32_t Open(uint32_t phase) override {
      opener_ = std::this_thread::get_id();
      return phase == 100 ? kEnd : phase % 10 == 0 ? 8 : 1;
    }
    void Run(uint32_t phase, uint32_t, int) override {
      if (phase % 10 != 0) moved_ += std::this_thread::get_id() != opener_;
    }
    std::thread::id opener_;
    int moved_ = 0;
  };
  auto team = Team::Create(3);
  CHECK_OK(team);
  for (int round = 0; round < 50; ++round) {
    Chain job;
    (*team)->Execute(&job);
    CHECK_EQ(job.moved_, 0);
  }
}

TEST(a_team_has_at_least_one_worker_and_not_too_many) {
  CHECK(!Team::Create(0).ok());
  CHECK(!Team::Create(Team::kMaxWorkers + 1).ok());
}

TEST(strength_gives_way_and_tries_again_ever_more_seldom) {
  Strength strength(4);
  int64_t now = 0;
  CHECK(!strength.Report(now, 0));
  CHECK(strength.Report(now, 1));
  CHECK_EQ(strength.active(), 3);
  CHECK(!strength.Resume(now + Strength::kFirstBreakNs - 1));
  now += Strength::kFirstBreakNs;
  CHECK(strength.Resume(now));
  CHECK_EQ(strength.active(), 4);
  // Breaks double up to the longest.
  int64_t length = Strength::kFirstBreakNs;
  for (int i = 0; i < 12; ++i) {
    length = std::min(2 * length, Strength::kLongestBreakNs);
    now += Strength::kWindowNs;
    CHECK(strength.Report(now, 2));
    CHECK_EQ(strength.active(), 2);
    CHECK(!strength.Resume(now + length - 1));
    now += length;
    CHECK(strength.Resume(now));
  }
  // A second of peace, and the next one is short again.
  CHECK(!strength.Report(now + Strength::kForgiveNs, 0));
  now += Strength::kForgiveNs;
  CHECK(strength.Report(now, 9));
  CHECK_EQ(strength.active(), 1);
  CHECK(!strength.Report(now, 1));  // one is always left
  CHECK(strength.Resume(now + Strength::kFirstBreakNs));
}

TEST(strength_counts_a_seventh_of_the_time_as_lost) {
  CHECK(!Strength::Lost(Strength::kWindowNs, Strength::kWindowNs / 7));
  CHECK(Strength::Lost(Strength::kWindowNs, Strength::kWindowNs / 7 + 1));
  CHECK(!Strength::Lost(Strength::kWindowNs, -5));
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
