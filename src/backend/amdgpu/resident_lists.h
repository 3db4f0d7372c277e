// SPDX-License-Identifier: MIT
//
// What is worked out of a list of launches before the resident kernel runs it (kernels/resident_args.h): which of its
// workgroups each launch begins with, and before which one all ranks' kernels can leave when the first rank is asked at
// another. Nobody may leave before an op that another rank has gone past, for some op there waits for all ranks. What
// bounds how far ranks are apart are ops that no rank ends before every one has begun them.
#ifndef MAINARCH_BACKEND_AMDGPU_RESIDENT_LISTS_H_
#define MAINARCH_BACKEND_AMDGPU_RESIDENT_LISTS_H_

#include <cstdint>
#include <vector>

#include "kernels/resident_args.h"

namespace mainarch::amdgpu {

// A list of launches that the resident kernel runs, and of each whether no rank ends it before all have begun it.
struct ResidentList {
  std::vector<kernels::ResidentOp> ops;
  std::vector<bool> together;
};

// Sets ResidentOp::first: of an op that runs beside the one before, the workgroups that have nothing to do in that, as
// far as there are such.
void DealApart(uint32_t workers, ResidentList* list);
// Sets ResidentOp::stop_at of all ops. The lists of several ranks must be Alike.
void SetStops(bool alone, ResidentList* list);

// Whether two ranks' lists have the same stops.
bool Alike(const std::vector<ResidentList>& a, const std::vector<ResidentList>& b);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_RESIDENT_LISTS_H_
