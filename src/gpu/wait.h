// SPDX-License-Identifier: MIT
//
// The one way this folder waits: look, spin a little, sleep on an event in slices, and give up at a
// deadline with a message that says what was waited for and how far it came. A lost device or a
// process that forked ends every wait at once.
#ifndef MAINARCH_GPU_WAIT_H_
#define MAINARCH_GPU_WAIT_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace mainarch::kfd {
class Sys;
}

namespace mainarch::gpu {

class Device;
class Event;

// A point on the monotonic clock (NowNs).
struct Deadline {
  int64_t at_ns = 0;
  // Of a deadline for work: for how long the devices must have stood still as well, and since when,
  // in their own time (kfd::Sys::Time). 0: the clock alone decides.
  int64_t still_ns = 0;
  int64_t since_ns = 0;

  static Deadline In(int64_t milliseconds);
  // For work that is given up when it takes longer. On a virtual node not before the node has stood
  // still for so long, or has been at it for kMostPatienceMs more: how fast it computes is the
  // host's business and says nothing of a hang.
  static Deadline ForWork(kfd::Sys& sys, int64_t milliseconds);
  static constexpr int64_t kMostPatienceMs = 600'000;

  bool Passed() const;
  // Whether a wait for what these devices do is over.
  bool GivesUp(kfd::Sys& sys, int64_t now_ns) const;
};

// True: done. False: go on. An error ends the wait.
using WaitCheck = absl::FunctionRef<StatusOr<bool>()>;

// `event` may be null: then it polls with short sleeps. `what` is asked only when time is up.
Status WaitUntil(Device& device, Event* event, Deadline deadline, WaitCheck done,
                 absl::FunctionRef<std::string()> what);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_WAIT_H_
