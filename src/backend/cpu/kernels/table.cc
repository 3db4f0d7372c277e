// SPDX-License-Identifier: MIT
#include "backend/cpu/kernels/table.h"

namespace mainarch::cpu::MAINARCH_TARGET {

const Kernels kKernels = kTable;

}  // namespace mainarch::cpu::MAINARCH_TARGET
