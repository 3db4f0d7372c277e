// SPDX-License-Identifier: MIT
#include "gpu/wait.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/event.h"
#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

constexpr int64_t kSpinNs = 20'000;          // a short kernel ends within this
constexpr int64_t kYieldNs = 100'000;        // then give way to whoever shares the core
constexpr int64_t kMaxSliceNs = 20'000'000;  // a lost interrupt costs no more than this
constexpr int64_t kMinNapNs = 50'000;
constexpr int64_t kMaxNapNs = 1'000'000;

void Nap(int64_t ns) {
  const timespec t = {ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&t, nullptr);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Sleeps until the event fires or `remaining` has passed, at most one slice.
Status Sleep(Event* event, int64_t waited, int64_t remaining) {
  if (event == nullptr || event->mailbox() == 0) {
    Nap(std::min({std::max(waited / 4, kMinNapNs), kMaxNapNs, std::max<int64_t>(remaining, 1)}));
    return {};
  }
  const int64_t slice = std::min(remaining, kMaxSliceNs);
  const uint32_t ms = static_cast<uint32_t>((slice + 999'999) / 1'000'000);
  return event->Wait(std::max<uint32_t>(ms, 1)).status();
}

}  // namespace

Deadline Deadline::In(int64_t milliseconds) {
  // A century is as good as for ever and does not overflow.
  constexpr int64_t kMaxMs = int64_t{100} * 366 * 86'400 * 1000;
  return {NowNs() + std::clamp<int64_t>(milliseconds, 0, kMaxMs) * 1'000'000};
}

Deadline Deadline::ForWork(kfd::Sys& sys, int64_t milliseconds) {
  const int64_t now = NowNs();
  const Deadline wall = In(milliseconds);
  return {wall.at_ns, std::max<int64_t>(wall.at_ns - now, 1), sys.Time().now_ns};
}

bool Deadline::GivesUp(kfd::Sys& sys, int64_t now_ns) const {
  if (now_ns < at_ns) return false;
  if (still_ns == 0 || since_ns < 0) return true;
  const kfd::DeviceTime time = sys.Time();
  if (time.now_ns - std::max(time.moved_ns, since_ns) >= still_ns) return true;
  return now_ns - at_ns >= kMostPatienceMs * 1'000'000;
}

bool Deadline::Passed() const { return NowNs() >= at_ns; }

Status WaitUntil(Device& device, Event* event, Deadline deadline, WaitCheck done,
                 absl::FunctionRef<std::string()> what) {
  int64_t start = 0;  // not asked for when there is nothing to wait for
  for (;;) {
    // Health first: what a dead device left in memory proves nothing.
    RETURN_IF_ERROR(device.Health());
    ASSIGN_OR_RETURN(const bool finished, done());
    if (finished) return {};
    const int64_t now = NowNs();
    if (start == 0) start = now;
    if (deadline.GivesUp(device.process().sys(), now)) {
      RETURN_IF_ERROR(device.Probe());
      return Error(Code::kTimedOut, "waited ", (now - start) / 1'000'000, " ms for ", what());
    }
    if (now - start < kSpinNs) {
      for (int i = 0; i < 16; ++i) Pause();
    } else if (now - start < kYieldNs) {
      sched_yield();
    } else {
      const int64_t left = now < deadline.at_ns ? deadline.at_ns - now : kMaxSliceNs;
      RETURN_IF_ERROR(Sleep(event, now - start, left));
    }
  }
}

}  // namespace mainarch::gpu
