// SPDX-License-Identifier: MIT
//
// Expected results of vector instructions, one function a mnemonic, written from the manual's text
// with host integers and doubles: nothing here is shared with the interpreter.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_VECTORS_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_VECTORS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace mainarch::sim::isa::test {

// How values are drawn and results compared.
enum class Kind { kInt, kF32, kF64, kF16, kBf16Pair, kF16Pair };

struct Vector {
  std::string name;
  Kind in, out;
  // Raw bits of a, b, c (and of the old destination) to raw bits of the result.
  std::function<uint64_t(uint64_t, uint64_t, uint64_t, uint64_t)> expect;
  double tolerance = 0;  // relative; 0 is bit-exact except that any NaN equals any NaN
};

// What `expect` gives where the manual does not say.
constexpr uint64_t kAnything = ~uint64_t{0} - 1;

std::vector<Vector> IntegerVectors();
std::vector<Vector> FloatVectors();
std::vector<Vector> ConversionVectors();
std::vector<Vector> MoreVectors();
std::vector<Vector> RareVectors();

// Scalars: a, b, SCC in; the result and SCC out (2: unchanged).
struct ScalarVector {
  std::string name;
  int width_d, width_a, width_b;  // dwords; 0 absent
  struct Out {
    uint64_t value;
    int scc;
  };
  std::function<Out(uint64_t, uint64_t, bool)> expect;
};
std::vector<ScalarVector> ScalarVectors();

// Mnemonics that state_test.cc runs on the whole register state, and flow_test.cc beside it.
std::set<std::string> StateNames();
std::set<std::string> FlowNames();

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_VECTORS_H_
