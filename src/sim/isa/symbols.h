// SPDX-License-Identifier: MIT
//
// A kernel's name, found where its code object lies in device memory: loaded segments hold the ELF
// header and the dynamic symbols. So every report has a name, whoever loaded the object. The bytes
// are untrusted: whatever is not as expected gives "".
#ifndef MAINARCH_SIM_ISA_SYMBOLS_H_
#define MAINARCH_SIM_ISA_SYMBOLS_H_

#include <cstdint>
#include <string>

#include "sim/isa/memory.h"

namespace mainarch::sim::isa {

// `descriptor`: address of the kernel descriptor, the symbol <name>.kd.
std::string KernelName(Memory* memory, uint64_t descriptor);

// Where the object that holds `va` begins in device memory; 0 when there is none.
uint64_t FindObject(Memory* memory, uint64_t va);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_SYMBOLS_H_
