// SPDX-License-Identifier: MIT
#include "backend/devices.h"

#include "backend/cpu/cpu_backend.h"

namespace mainarch::backend {

StatusOr<ListedDevice> ListCpu() {
  ListedDevice cpu;
  cpu.device = "cpu";
  ASSIGN_OR_RETURN(cpu.info, cpu::CpuInfo());
  return cpu;
}

}  // namespace mainarch::backend
