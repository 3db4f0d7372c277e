// SPDX-License-Identifier: MIT
//
// Tests of the GPU path in a build that has none (MAINARCH_WITHOUT_GPUS, meson.build).
#ifndef MAINARCH_TESTS_SUPPORT_GPUS_H_
#define MAINARCH_TESTS_SUPPORT_GPUS_H_

#include <string_view>

#include "support/test.h"

namespace mainarch::test {

#ifdef MAINARCH_WITHOUT_GPUS
inline constexpr bool kHasGpus = false;
#else
inline constexpr bool kHasGpus = true;
#endif

// Of a test of several devices: whether it has this one.
inline bool IsHere(std::string_view device) { return kHasGpus || device.substr(0, 3) == "cpu"; }

}  // namespace mainarch::test

// First in a test of GPUs alone.
#define NEEDS_GPUS()                                                 \
  do {                                                               \
    if (!mainarch::test::kHasGpus) {                                 \
      test_context.Skip("this build has no GPUs and virtual nodes"); \
      return;                                                        \
    }                                                                \
  } while (0)

#endif  // MAINARCH_TESTS_SUPPORT_GPUS_H_
