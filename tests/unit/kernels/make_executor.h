// SPDX-License-Identifier: MIT
//
// The interpreter that kernel tests run on, with every checker it has.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_MAKE_EXECUTOR_H_
#define MAINARCH_TESTS_UNIT_KERNELS_MAKE_EXECUTOR_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "sim/executor.h"

namespace mainarch::kernels_test {

inline StatusOr<std::unique_ptr<sim::Executor>> MakeExecutor(const std::string& /*isa*/,
                                                             uint64_t /*seed*/) {
  return Error(Code::kUnsupported, "no interpreter in this build");
}

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_MAKE_EXECUTOR_H_
