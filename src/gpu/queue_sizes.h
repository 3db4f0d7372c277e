// SPDX-License-Identifier: MIT
//
// Sizes that the kernel checks to the byte when a compute queue is created: the context save area
// (where waves go when they are preempted) and scratch. From the driver's own numbers when sysfs
// prints them, else from the driver's formula.
#ifndef MAINARCH_GPU_QUEUE_SIZES_H_
#define MAINARCH_GPU_QUEUE_SIZES_H_

#include <cstdint>

#include "kfd/topology.h"

namespace mainarch::gpu {

struct SaveAreaSizes {
  uint32_t control_stack = 0;  // an XCC
  uint32_t save_restore = 0;   // an XCC, control stack included
  uint32_t debug = 0;          // an XCC
  uint64_t total = 0;          // of the buffer
  bool from_sysfs = false;
};

// By the formula alone, and as a queue should be created (sysfs first).
SaveAreaSizes ComputeSaveArea(const kfd::NodeProperties& properties);
SaveAreaSizes ChooseSaveArea(const kfd::NodeProperties& properties);

// Scratch for waves that need `bytes_per_lane`, for as many waves as can run at once, or fewer when
// `limit_bytes` is less than that.
struct ScratchSizes {
  uint64_t per_xcc = 0;
  uint64_t total = 0;
  uint32_t bytes_per_lane = 0;  // rounded up
  uint32_t tmpring = 0;         // COMPUTE_TMPRING_SIZE: waves [11:0], KiB a wave [24:12]
};
ScratchSizes ComputeScratch(const kfd::NodeProperties& properties, uint32_t bytes_per_lane,
                            uint64_t limit_bytes);

uint32_t ComputeUnits(const kfd::NodeProperties& properties);  // active, all XCCs
uint32_t MaxWavesPerCu(const kfd::NodeProperties& properties);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_QUEUE_SIZES_H_
