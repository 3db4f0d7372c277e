// SPDX-License-Identifier: MIT
//
// What the tests that run cases on the interpreter share.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_RUN_FRESH_H_
#define MAINARCH_TESTS_UNIT_KERNELS_RUN_FRESH_H_

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "isa/kernel_images.h"
#include "sim/isa/executor.h"
#include "unit/kernels/case.h"
#include "unit/kernels/executor_runner.h"

namespace mainarch::kernels_test {

// The object inside the library.
inline StatusOr<absl::Span<const uint8_t>> Shipped(const std::string& isa,
                                                   const std::string& kernel) {
  ASSIGN_OR_RETURN(const isa::KernelRef found, isa::FindKernel(isa, kernel));
  return found.image->bytes;
}

inline bool IsFor(const Case& test, const std::string& isa) {
  return test.isas.empty() || std::count(test.isas.begin(), test.isas.end(), isa) != 0;
}

// A fresh machine for each case.
inline Status RunFresh(const Case& test, const std::string& isa, const ExecutorOptions& options,
                       const ObjectOf& objects, std::map<std::string, Bytes>* contents,
                       const sim::isa::CheckOptions& check = {},
                       sim::isa::Observer* observer = nullptr) {
  sim::isa::ExecutorOptions interpreter;
  interpreter.check = check;
  interpreter.observer = observer;
  ASSIGN_OR_RETURN(
      std::unique_ptr<ExecutorRunner> runner,
      ExecutorRunner::Create(std::make_unique<sim::isa::IsaExecutor>(interpreter), isa, options));
  return RunCase(*runner, test, objects, contents);
}

// MAINARCH_KERNEL_CASE=text runs only the cases whose name holds the text.
inline bool Wanted(const Case& test) {
  const char* only = std::getenv("MAINARCH_KERNEL_CASE");
  return only == nullptr || test.name.find(only) != std::string::npos;
}

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_RUN_FRESH_H_
