// SPDX-License-Identifier: MIT
//
// How many workers of a team to use while others want the processors too. A worker that the kernel
// puts aside in the middle of an item holds up all the rest, so two threads beside a busy program
// can be slower than one. From time to time a team tells how much of its workers' time was lost;
// when one lost much, that many fewer work for a while, and the break doubles each time a trial at
// full strength shows that the program is still there. Pure arithmetic: clocks are the caller's.
#ifndef MAINARCH_BASE_STRENGTH_H_
#define MAINARCH_BASE_STRENGTH_H_

#include <algorithm>
#include <cstdint>

namespace mainarch {

class Strength {
 public:
  // Long enough that a daemon's millisecond does not count, short enough for a break to come soon.
  static constexpr int64_t kWindowNs = 20'000'000;
  // A trial costs a window at worst: 1 % of the longest break.
  static constexpr int64_t kFirstBreakNs = 50'000'000;
  static constexpr int64_t kLongestBreakNs = 2'000'000'000;
  // So long at full strength, and the next break is a short one again: something that comes for a
  // moment twice a second is not a program that wants the processor.
  static constexpr int64_t kForgiveNs = 200'000'000;

  explicit Strength(int workers) : workers_(workers), active_(workers) {}

  int active() const { return active_; }

  // Whether a break is over at `now`; then all workers are active, on trial.
  bool Resume(int64_t now) {
    if (active_ == workers_ || now < until_) return false;
    active_ = workers_;
    since_ = now;
    return true;
  }

  // Workers that lost over a seventh of `window` ns to others, of those active; true: fewer are
  // active from now on.
  bool Report(int64_t now, int losers) {
    if (losers == 0) {
      if (active_ == workers_ && now - since_ >= kForgiveNs) break_ = kFirstBreakNs;
      return false;
    }
    if (active_ == 1) return false;
    active_ = std::max(1, active_ - losers);
    until_ = now + break_;
    break_ = std::min(2 * break_, kLongestBreakNs);
    return true;
  }

  static bool Lost(int64_t window, int64_t lost) { return lost > window / 7; }

 private:
  int workers_;
  int active_;
  int64_t since_ = 0;  // at full strength
  int64_t until_ = 0;  // of the break
  int64_t break_ = kFirstBreakNs;
};

}  // namespace mainarch

#endif  // MAINARCH_BASE_STRENGTH_H_
