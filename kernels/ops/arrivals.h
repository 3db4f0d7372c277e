// SPDX-License-Identifier: MIT
//
// How all workgroups of a launch, which must all be there at once, hand over what they have stored.
#ifndef MAINARCH_KERNELS_OPS_ARRIVALS_H_
#define MAINARCH_KERNELS_OPS_ARRIVALS_H_

#include "kernels/common/sync.h"
#include "kernels/common/wave.h"
#include "kernels/experts_args.h"

namespace mainarch::kernels {

// Nobody goes on before all have stored what they had to. Each tells all copies of its word, at once, and looks at one of them: a
// count would be one step more, and one word for all would be looked at by turns.
DEVICE void Arrive(Global<uint32_t> words, uint32_t tag, uint32_t worker, uint32_t workers) {
  WaitVectorMemory();
  Barrier();
  if (WaveId() != 0) return;
  FenceRelease<Scope::kDevice>();
  if (LaneId() < ArrivalCopies(workers)) StoreFlag<Scope::kDevice>(words + LaneId() * kMostArrivals + worker, tag);
}
// A wave asks for all that its lanes have until it has come: for whole lines, what lies in them behind the last workgroup's word, too.
DEVICE void AwaitAll(Global<const uint32_t> words, uint32_t tag, uint32_t worker, uint32_t workers) {
  const Global<const uint32_t> own = words + worker / kLookers * kMostArrivals;
  for (uint32_t first = Uniform(WaveId()) * kWave; first < workers; first += kThreads) {
    const uint32_t w = first + LaneId();
    while (Ballot(LoadFlag<Scope::kDevice>(own + w) != tag && w < workers) != 0) Pause();
  }
  Barrier();
  FenceAcquire<Scope::kDevice>();
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ARRIVALS_H_
