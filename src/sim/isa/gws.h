// SPDX-License-Identifier: MIT
//
// Global wave sync: 64 counters that waves of a whole grid meet at, as semaphores or as barriers.
// One a process and GPU, as the VMID's allocation; what ds_gws_* does to it is gws.cc.
//
// Threads: any.
#ifndef MAINARCH_SIM_ISA_GWS_H_
#define MAINARCH_SIM_ISA_GWS_H_

#include <array>
#include <cstdint>
#include <mutex>

namespace mainarch::sim::isa {

struct Gws {
  struct Resource {
    int64_t counter = 0;
    int64_t waiting = 0;  // waves that stand at the semaphore
    uint64_t round = 1;   // of the barrier: which one is being waited for
  };
  static constexpr uint32_t kResources = 64;

  std::mutex mutex;  // guards what follows
  std::array<Resource, kResources> resources;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_GWS_H_
