// SPDX-License-Identifier: MIT
#ifndef MAINARCH_BASE_CLOCK_H_
#define MAINARCH_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace mainarch {

// Monotonic time in nanoseconds.
inline int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace mainarch

#endif  // MAINARCH_BASE_CLOCK_H_
