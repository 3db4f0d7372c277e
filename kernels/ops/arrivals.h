// SPDX-License-Identifier: MIT
//
// How all workgroups of a launch, which must all be there at once, hand over what they have stored.
#ifndef MAINARCH_KERNELS_OPS_ARRIVALS_H_
#define MAINARCH_KERNELS_OPS_ARRIVALS_H_

#include "kernels/common/sync.h"
#include "kernels/common/wave.h"
#include "kernels/experts_args.h"

namespace mainarch::kernels {

// Nobody goes on before all have stored what they had to. They are counted in several lines, which
// are added to at once; the last one of a line counts it in one more, and that is the only one
// looked at, by a lane of each workgroup.
DEVICE void Arrive(Global<uint32_t> lines, uint32_t worker, uint32_t workers) {
  const uint32_t group = worker % kArrivalGroups;
  WaitVectorMemory();
  Barrier();
  if (ThreadId() != 0) return;
  const uint32_t members = (workers - group + kArrivalGroups - 1) / kArrivalGroups;
  FenceRelease<Scope::kDevice>();
  if (AddFlag<Scope::kDevice>(lines + group * kArrivalWords, 1u) + 1 == members) {
    // What the others of the line have stored goes on with this one's count.
    FenceAcquire<Scope::kDevice>();
    FenceRelease<Scope::kDevice>();
    AddFlag<Scope::kDevice>(lines + kArrivalGroups * kArrivalWords, 1u);
  }
}
DEVICE void AwaitAll(Global<const uint32_t> lines, uint32_t workers) {
  Await<Scope::kDevice, Until::kEqual>(lines + kArrivalGroups * kArrivalWords,
                                       Min(workers, kArrivalGroups), ThreadId() == 0);
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ARRIVALS_H_
