// SPDX-License-Identifier: MIT
//
// Wait states that hardware does not insert by itself: after some instructions so many others must
// be issued before a dependent one. The table is that of the CDNA3 and CDNA4 manuals (manually
// inserted wait states; dependences of matrix instructions) in the form that LLVM's hazard
// recognizer publishes. Counted in executed order, across branches. One object a wave.
#ifndef MAINARCH_SIM_ISA_CHECK_NOPS_H_
#define MAINARCH_SIM_ISA_CHECK_NOPS_H_

#include <array>
#include <cstdint>
#include <string>

#include "sim/isa/check/effects.h"

namespace mainarch::sim::isa {

// An s_nop with this bit in its operand counts for nothing. Hardware looks at the low four bits
// only; mutants use it to take a nop away without moving code.
inline constexpr int kNoStates = 0x8000;

class NopCheck {
 public:
  // Before the instruction runs: "" or what is missing. Counts it.
  std::string Issue(const Wave& w, const Op& op, const Effects& effects);

 private:
  static constexpr size_t kPast = 20;  // no rule reaches further
  struct Past {
    Effects effects;
    Op op;
    uint64_t pc = 0;
    uint64_t clock = ~uint64_t{0};
  };
  struct Need {
    int states = 0;
    const char* why = "";
  };
  void Forward(Isa isa, const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Vector(Isa isa, const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Lanes(const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Scalar(const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Matrix(Isa isa, const Past& before, const Op& op, const Effects& e, Need* need) const;
  void MatrixToMatrix(Isa isa, const Past& before, const Op& op, const Effects& e, unsigned* seen,
                      Need* need) const;

  std::array<Past, kPast> past_;
  uint64_t count_ = 0;  // instructions
  uint64_t clock_ = 0;  // wait states
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_NOPS_H_
