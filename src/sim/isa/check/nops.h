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
#include "sim/isa/check/hazards.h"

namespace mainarch::sim::isa {

// An s_nop with this bit in its operand counts for nothing. Hardware looks at the low four bits
// only; mutants use it to take a nop away without moving code.
inline constexpr int kNoStates = 0x8000;

// A rule that is broken: `seen` wait states lie between where `asked` are needed.
struct HazardFinding {
  const HazardRule* rule = nullptr;
  int asked = 0, seen = 0;
  Op before;
  uint64_t before_pc = 0;
};
std::string Describe(Isa isa, const HazardFinding& finding);

class NopCheck {
 public:
  // `known`: what hardware is known to forgive is forgiven (hazards.h).
  explicit NopCheck(bool known = false) : known_(known) {}

  // Before the instruction at `pc` is issued: whether something is missing. Counts it.
  bool Issue(Isa isa, uint64_t pc, const Op& op, const Effects& effects, HazardFinding* finding);
  // Forgets what came before, as after a jump whose way here is not known.
  void Forget() { count_ = 0; }

 private:
  static constexpr size_t kPast = 20;  // no rule reaches further
  static constexpr int kOthers = 5;    // nor any from an instruction that is no matrix instruction (kSgprVmem, kExecDpp)
  struct Past {
    Effects effects;
    Op op;
    uint64_t pc = 0;
    uint64_t clock = ~uint64_t{0};
    int reach = 0;  // the most wait states that any rule asks for after it
  };
  // What one earlier instruction asks of this one.
  struct Need {
    bool known = false;
    int states = 0;
    const HazardRule* rule = nullptr;
  };
  static bool AnyRuleLooksAt(const RowFacts& now);
  static int ReachOf(Isa isa, const Op& op, const Effects& e);
  void Forward(Isa isa, const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Vector(Isa isa, const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Lanes(const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Scalar(const Past& before, const Op& op, const Effects& e, Need* need) const;
  void Matrix(Isa isa, const Past& before, const Op& op, const Effects& e, Need* need) const;
  void MatrixToMatrix(Isa isa, const Past& before, const Op& op, const Effects& e, unsigned* seen,
                      Need* need) const;

  bool known_ = false;
  std::array<Past, kPast> past_;
  uint64_t count_ = 0;  // instructions
  uint64_t clock_ = 0;  // wait states
  uint64_t matrix_end_ = 0;  // by then what the last matrix instruction asks for has passed
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_NOPS_H_
