// SPDX-License-Identifier: MIT
//
// A machine made of one function, time by workers: a large team finds its best number of workers, goes back when the
// machine changes, and is not led astray by steps that took long for other reasons.
#include "base/width.h"

#include <functional>
#include <random>

#include "support/test.h"

using mainarch::Width;

namespace {

// Nanoseconds that steps took in all, with the best number of workers at the end.
int64_t Play(Width* width, int steps, int64_t kind, const std::function<double(int)>& time) {
  int64_t sum = 0;
  for (int i = 0; i < steps; ++i) {
    const int64_t ns = static_cast<int64_t>(time(width->current()));
    width->Report(kind, ns);
    sum += ns;
  }
  return sum;
}

// Bandwidth grows with workers up to `knee`, and falls slowly behind it.
double TimeOf(int workers, int knee) {
  const double rate = workers <= knee ? workers : knee * (1 - 0.004 * (workers - knee));
  return 1e9 / rate;
}

}  // namespace

TEST(a_large_team_finds_the_number_of_workers_that_reads_fastest) {
  Width width(64);
  CHECK_EQ(width.current(), 64);
  Play(&width, 1000, 1, [](int workers) { return TimeOf(workers, 40); });
  CHECK_EQ(width.best(), 40);
  // The machine has become faster: all are needed again.
  Play(&width, 100'000, 1, [](int workers) { return TimeOf(workers, 64); });
  CHECK_EQ(width.best(), 64);
}

TEST(where_all_are_needed_trials_cost_next_to_nothing) {
  Width width(48);
  const int64_t took = Play(&width, 20'000, 1, [](int workers) { return TimeOf(workers, 48); });
  CHECK_EQ(width.best(), 48);
  CHECK_LE(static_cast<double>(took), 20'000 * TimeOf(48, 48) * 1.002);
}

TEST(small_teams_stay_whole) {
  Width width(Width::kLeastWorkers - 1);
  for (int i = 0; i < 1000; ++i) {
    width.Report(1, 1000 / width.current());
    CHECK_EQ(width.current(), Width::kLeastWorkers - 1);
  }
}

TEST(steps_of_another_kind_end_a_trial) {
  Width width(64);
  // Were they taken for one kind, half of the trials would show a gain.
  for (int i = 0; i < 50'000; ++i) {
    const int64_t kind = i / 6 % 2;
    width.Report(kind, static_cast<int64_t>(TimeOf(width.current(), 64) * (kind == 0 ? 1 : 4)));
    CHECK_EQ(width.best(), 64);
  }
}

TEST(noise_changes_little) {
  std::mt19937 rng(3);
  Width width(64);
  int away = 0;
  for (int i = 0; i < 200'000; ++i) {
    const double noise = 1 + 0.01 * std::normal_distribution<double>()(rng) + (rng() % 50 == 0 ? 0.5 : 0);
    width.Report(1, static_cast<int64_t>(TimeOf(width.current(), 64) * noise));
    away += width.best() < 56;
  }
  CHECK_LE(away, 200'000 / 20);
}
