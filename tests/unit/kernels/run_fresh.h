// SPDX-License-Identifier: MIT
//
// What the tests that run cases on the interpreter share.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_RUN_FRESH_H_
#define MAINARCH_TESTS_UNIT_KERNELS_RUN_FRESH_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isa/kernel_images.h"
#include "sim/isa/executor.h"
#include "support/sanitized.h"
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

// MAINARCH_KERNEL_CASE=text runs only the cases whose name holds the text.
inline bool Wanted(const Case& test) {
  const char* only = std::getenv("MAINARCH_KERNEL_CASE");
  return only == nullptr || test.name.find(only) != std::string::npos;
}

using test::kSanitized;

// Of each family's cases, made when they are asked for the first time: with their references they take ten seconds.
inline const std::vector<Case>& MadeCases() {
  static const auto& cases = *new std::vector<Case>(AllCases());
  return cases;
}

// The cases of an ISA that are wanted. Under a sanitizer watched kernels take some twenty times as
// long: there only cases with the smallest buffers, so that each kernel is in one at least, and the
// output says so.
inline std::vector<const Case*> CasesOf(const std::string& isa) {
  std::vector<const Case*> all;
  for (const Case& c : MadeCases()) {
    if (IsFor(c, isa) && Wanted(c)) all.push_back(&c);
  }
  if (!kSanitized) return all;
  const auto bytes = [](const Case& c) {
    size_t sum = 0;
    for (const Buffer& b : c.buffers) sum += b.initial.size();
    return sum;
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Case* a, const Case* b) { return bytes(*a) < bytes(*b); });
  std::set<std::string> seen;
  std::vector<const Case*> some;
  for (const Case* test : all) {
    bool fresh = false;
    for (const auto& step : test->steps) {
      for (const LaunchSpec& launch : step) fresh |= seen.insert(launch.kernel).second;
    }
    if (fresh) some.push_back(test);
  }
  std::printf("# under a sanitizer: %zu of %zu cases on %s, %zu kernels\n", some.size(), all.size(),
              isa.c_str(), seen.size());
  return some;
}

// Of these cases those whose turn it is on an ISA: of what runs on both each has one in `every`, `even` the first; of what runs on
// one it has one in `every` / 2. With `each_kernel` the first case of every kernel has its turn, too, on one ISA. With
// MAINARCH_TEST_FULL, or where a case is asked for, all.
inline std::vector<const Case*> CasesInTurn(const std::string& isa, const std::string& even, size_t every, bool each_kernel) {
  std::vector<const Case*> cases = CasesOf(isa);
  if (std::getenv("MAINARCH_TEST_FULL") != nullptr || std::getenv("MAINARCH_KERNEL_CASE") != nullptr) return cases;
  // Those of both ISAs come in the same order.
  size_t turn = isa == even ? 0 : every - 1, first_turn = isa == even ? 0 : 1, own_turn = 0;
  std::set<std::string> seen, own_seen;
  const auto waits = [&](const Case* c) {
    const bool both = c->isas.empty();
    bool fresh = false;
    for (const auto& step : c->steps) {
      for (const LaunchSpec& launch : step) fresh |= (both ? seen : own_seen).insert(launch.kernel).second;
    }
    const bool first = each_kernel && fresh && (!both || first_turn++ % 2 == 0);
    return (both ? turn++ % every : own_turn++ % (every / 2)) != 0 && !first;
  };
  cases.erase(std::remove_if(cases.begin(), cases.end(), waits), cases.end());
  return cases;
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

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_RUN_FRESH_H_
