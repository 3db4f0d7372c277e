// SPDX-License-Identifier: MIT
//
// Opcodes that LLVM's tables decode for gfx9 and that gfx942 and gfx950 do not have. Executing one
// is an illegal instruction, as it is on the chip; the reason is for the person who reads the
// report. Pure function.
#ifndef MAINARCH_SIM_ISA_ABSENT_H_
#define MAINARCH_SIM_ISA_ABSENT_H_

#include "sim/isa/decode.h"

namespace mainarch::sim::isa {

// nullptr for an opcode that the chips have.
const char* WhyAbsent(const OpRow& row);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_ABSENT_H_
