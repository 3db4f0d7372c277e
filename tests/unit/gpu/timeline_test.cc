// SPDX-License-Identifier: MIT
//
// The arithmetic of timelines around 2^32 points, where 32-bit engines begin to see double; and when
// a wait for work gives up.
#include "gpu/timeline.h"

#include "base/clock.h"
#include "support/test.h"
#include "unit/kfd/fake_sys.h"

namespace mainarch::gpu {
namespace {

using Kind = Timeline::Kind;

constexpr uint64_t k32 = uint64_t{1} << 32;

// What an engine decides that reads the low half of a timeline's word at `completed`.
bool Holds(Kind kind, uint64_t completed, const Timeline::Poll& poll) {
  const uint32_t word =
      kind == Kind::kFence
          ? static_cast<uint32_t>(completed)
          : static_cast<uint32_t>(Timeline::kStart - static_cast<int64_t>(completed));
  switch (poll.function) {
    case PollFunction::kAlways:
      return false;
    case PollFunction::kLessEqual:
      return !(word <= poll.reference);
    case PollFunction::kGreaterEqual:
      return !(word >= poll.reference);
    default:
      return true;
  }
}

TEST(a_fence_word_tells_the_whole_point) {
  for (const uint64_t issued : {uint64_t{0}, uint64_t{5}, k32 - 1, k32, k32 + 1, 7 * k32 + 3}) {
    for (const uint64_t behind : {0u, 1u, 5u, 1000u}) {
      if (behind > issued) continue;
      const uint64_t completed = issued - behind;
      CHECK_EQ(Timeline::CompletedOfFence(issued, static_cast<uint32_t>(completed)), completed);
    }
  }
}

TEST(a_32_bit_poll_never_lets_go_early_and_never_hangs) {
  constexpr uint64_t kLate = Timeline::kLateness;
  int answered = 0, refused = 0;
  for (const Kind kind : {Kind::kSignal, Kind::kFence}) {
    for (const uint64_t base : {uint64_t{0}, k32 - kLate - 4, k32 - 4, k32, 3 * k32 - 2}) {
      for (uint64_t completed = base; completed < base + 8; ++completed) {
        for (uint64_t point = base; point < base + 8; ++point) {
          auto poll = Timeline::PollBetween(kind, completed, point);
          if (!poll.ok()) {
            ++refused;
            CHECK_LT(completed, point);
            continue;
          }
          ++answered;
          // However late it looks, it holds exactly until `point`.
          for (const uint64_t late : {uint64_t{0}, uint64_t{1}, uint64_t{5}, kLate - 1}) {
            for (uint64_t now = completed; now < base + 8; ++now) {
              CHECK_EQ(Holds(kind, now, *poll), now < point);
            }
            CHECK(!Holds(kind, point + late, *poll));
          }
        }
      }
    }
  }
  CHECK_LT(100, answered);
  CHECK_LT(20, refused);
}

// Devices with a time of their own.
class ClockSys : public test::FakeSys {
 public:
  kfd::DeviceTime time;
  kfd::DeviceTime Time() override { return time; }
};

TEST(a_deadline_for_work_counts_the_devices_own_time) {
  constexpr int64_t kMs = 1'000'000;
  ClockSys sys;
  sys.time = {5000 * kMs, 100 * kMs};  // idle for long
  const Deadline work = Deadline::ForWork(sys, 20);
  const int64_t over = work.at_ns + kMs;
  CHECK(!work.GivesUp(sys, work.at_ns - 1));
  // The host's clock alone decides nothing, nor does what was before the wait.
  CHECK(!work.GivesUp(sys, over));
  sys.time.now_ns += 19 * kMs;
  CHECK(!work.GivesUp(sys, over));
  sys.time.now_ns += 2 * kMs;
  CHECK(work.GivesUp(sys, over));
  // Something moved.
  sys.time.moved_ns = sys.time.now_ns - 10 * kMs;
  CHECK(!work.GivesUp(sys, over));
  sys.time.now_ns += 12 * kMs;
  CHECK(work.GivesUp(sys, over));
  // A machine that always moves, and one that cannot tell.
  sys.time.moved_ns = sys.time.now_ns;
  CHECK(!work.GivesUp(sys, work.at_ns + (Deadline::kMostPatienceMs - 1) * kMs));
  CHECK(work.GivesUp(sys, work.at_ns + Deadline::kMostPatienceMs * kMs));
  test::FakeSys hardware;
  const Deadline wall = Deadline::ForWork(hardware, 20);
  CHECK(!wall.GivesUp(hardware, wall.at_ns - 1));
  CHECK(wall.GivesUp(hardware, wall.at_ns));
  // Of others the clock decides.
  const Deadline plain = Deadline::In(20);
  CHECK(plain.GivesUp(sys, plain.at_ns));
}

}  // namespace
}  // namespace mainarch::gpu
