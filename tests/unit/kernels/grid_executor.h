// SPDX-License-Identifier: MIT
//
// The interpreter as a sim::Executor for kernel tests: one host thread, memory as the context
// translates it, no cache model. The node's own executor does more.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_GRID_EXECUTOR_H_
#define MAINARCH_TESTS_UNIT_KERNELS_GRID_EXECUTOR_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "sim/executor.h"

namespace mainarch::kernels_test {

StatusOr<std::unique_ptr<sim::Executor>> MakeExecutor(const std::string& isa);

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_GRID_EXECUTOR_H_
