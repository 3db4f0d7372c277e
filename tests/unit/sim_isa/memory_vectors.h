// SPDX-License-Identifier: MIT
//
// What the tests of memory instructions share: registers they use, and which instructions they have
// run.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_MEMORY_VECTORS_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_MEMORY_VECTORS_H_

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mainarch::sim::isa::test {

using Random = std::mt19937;
inline constexpr int kAddress = 0, kData = 32, kData2 = 48, kResult = 64;

inline float F(uint32_t x) { return __builtin_bit_cast(float, x); }
inline uint32_t B(float x) { return __builtin_bit_cast(uint32_t, x); }

inline std::string Reg(int first, uint32_t dwords) {
  return dwords == 1 ? absl::StrCat("v", first)
                     : absl::StrCat("v[", first, ":", first + static_cast<int>(dwords) - 1, "]");
}

// For the last test, which asks what is missing.
inline std::set<std::string>& Ran() {
  static std::set<std::string> names;
  return names;
}
inline void RanAll(const std::string& source) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(source, '\n')))
    Ran().insert(line.substr(0, line.find(' ')));
}

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_MEMORY_VECTORS_H_
