// SPDX-License-Identifier: MIT
#ifndef MAINARCH_BACKEND_CPU_THREADS_H_
#define MAINARCH_BACKEND_CPU_THREADS_H_

#include <cstdint>

namespace mainarch::cpu {

// CPUs this process may use: its affinity mask, cut by the cgroup's CPU quota; at least 1.
uint32_t UsableCpus();

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_THREADS_H_
