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

namespace mainarch::gpu {

class Device;
class Event;

// A point on the monotonic clock (NowNs).
struct Deadline {
  int64_t at_ns = 0;
  static Deadline In(int64_t milliseconds);
  bool Passed() const;
};

// True: done. False: go on. An error ends the wait.
using WaitCheck = absl::FunctionRef<StatusOr<bool>()>;

// `event` may be null: then it polls with short sleeps. `what` is asked only when time is up.
Status WaitUntil(Device& device, Event* event, Deadline deadline, WaitCheck done,
                 absl::FunctionRef<std::string()> what);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_WAIT_H_
