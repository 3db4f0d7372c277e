// SPDX-License-Identifier: MIT
//
// How many workers of a large team read fastest. Memory gives all it has to fewer threads than a large machine has,
// and more than that only get in each other's way (64 threads of a Xeon read what 48 do, less 5 %; src/README.md). So
// steps that read and hardly compute are tried, from time to time, with other numbers of workers between two series
// with the present one; what is faster than both stays. Results do not depend on it. Pure arithmetic: clocks are the
// caller's.
#ifndef MAINARCH_BASE_WIDTH_H_
#define MAINARCH_BASE_WIDTH_H_

#include <algorithm>
#include <cstdint>

namespace mainarch {

class Width {
 public:
  static constexpr int kLeastWorkers = 24;  // smaller teams are always whole
  static constexpr int kSeries = 8;         // steps that are timed together
  // Steps between two trials: after one that changed something, and at most, each in vain doubling it.
  static constexpr int kFirstRest = 32, kLongestRest = 8192;
  // A trial must be so much faster than either series beside it.
  static constexpr double kGain = 0.98;

  explicit Width(int workers) : workers_(workers), best_(workers) {}

  // Workers for the next step.
  int current() const { return stage_ == Stage::kTrial ? Candidate() : best_; }
  int best() const { return best_; }

  // A step of `kind` took so long. Steps of one kind are alike; another kind ends a trial.
  void Report(int64_t kind, int64_t ns) {
    if (workers_ < kLeastWorkers) return;
    if (stage_ == Stage::kRest) {
      if (++steps_ < rest_) return;
      return Begin(Stage::kBefore, kind);
    }
    if (kind != kind_) return Begin(Stage::kBefore, kind);
    // The first step of a series wakes or parks workers.
    if (steps_++ > 0) sum_ += ns;
    if (steps_ <= kSeries) return;
    const int64_t sum = sum_;
    switch (stage_) {
      case Stage::kBefore:
        before_ = sum;
        return Begin(Stage::kTrial, kind);
      case Stage::kTrial:
        trial_ = sum;
        return Begin(Stage::kAfter, kind);
      default:
        return Decide(sum);
    }
  }

 private:
  enum class Stage { kRest, kBefore, kTrial, kAfter };

  void Begin(Stage stage, int64_t kind) {
    stage_ = stage;
    kind_ = kind;
    steps_ = 0;
    sum_ = 0;
  }

  void Decide(int64_t after) {
    const double limit = kGain * static_cast<double>(std::min(before_, after));
    if (static_cast<double>(trial_) < limit) {
      best_ = Candidate();
      rest_ = kFirstRest;  // and on in this direction
    } else {
      down_ = !down_;
      rest_ = std::min(2 * rest_, kLongestRest);
    }
    Begin(Stage::kRest, 0);
  }

  // An eighth of the team more or fewer, at least half of it.
  int Candidate() const {
    const int step = std::max(1, workers_ / 8), least = workers_ / 2;
    const int wanted = down_ ? best_ - step : best_ + step;
    if (wanted > workers_) return best_ == workers_ ? std::max(least, best_ - step) : workers_;
    return wanted < least ? std::min(workers_, best_ + step) : wanted;
  }

  const int workers_;
  int best_;
  bool down_ = true;  // where the next trial goes
  Stage stage_ = Stage::kRest;
  int steps_ = 0, rest_ = kFirstRest;
  int64_t kind_ = 0, sum_ = 0, before_ = 0, trial_ = 0;
};

}  // namespace mainarch

#endif  // MAINARCH_BASE_WIDTH_H_
