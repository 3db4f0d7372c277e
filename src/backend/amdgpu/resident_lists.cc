// SPDX-License-Identifier: MIT
#include "backend/amdgpu/resident_lists.h"

#include <algorithm>
#include <cstddef>

namespace mainarch::amdgpu {
namespace {

// A round's second op may find out that there is no such round.
constexpr size_t kFirstAsked = 2;

// The first op from `from` on with a meeting before it, or the list's end.
size_t MeetingFrom(const ResidentList& list, size_t from) {
  while (from < list.ops.size() && list.ops[from].beside != 0) ++from;
  return std::min(from, list.ops.size());
}

size_t TogetherFrom(const ResidentList& list, size_t from) {
  while (from < list.ops.size() && !list.together[from]) ++from;
  return std::min(from, list.ops.size());
}

}  // namespace

// The first rank looks in the meeting for op i, and what it tells is out when it arrives at the next meeting, n.
// So it is there before anybody ends `t`, the first op from n on that all must have begun. Behind the meeting that
// follows t, the first workgroup of each rank looks again in the one after that, and flags its arrival at the third.
//
// Who hears of it earlier must be in the same round: one op that all must have begun is over on the first rank when it
// looks.
void SetStops(bool alone, ResidentList* list) {
  const size_t count = list->ops.size();
  size_t first = kFirstAsked;
  if (!alone) first = std::max(first, MeetingFrom(*list, MeetingFrom(*list, TogetherFrom(*list, 0) + 1) + 1));
  for (size_t i = 0; i < count; ++i) {
    size_t stop = MeetingFrom(*list, i + 1);
    if (!alone) {
      const size_t together = TogetherFrom(*list, stop);
      stop = together + 1;
      for (int meeting = 0; meeting < 3; ++meeting) stop = MeetingFrom(*list, stop + (meeting == 0 ? 0 : 1));
    }
    list->ops[i].stop_at = i >= first && stop < count ? static_cast<uint16_t>(stop) : 0;
  }
}

void DealApart(uint32_t workers, ResidentList* list) {
  for (size_t i = 1; i < list->ops.size(); ++i) {
    const kernels::ResidentOp& before = list->ops[i - 1];
    kernels::ResidentOp& op = list->ops[i];
    const uint32_t behind = before.first + before.workers;
    op.first = static_cast<uint16_t>(op.beside == 0 ? 0 : std::min(behind, workers - op.workers));
  }
}

bool Alike(const std::vector<ResidentList>& a, const std::vector<ResidentList>& b) {
  const auto same_op = [](const kernels::ResidentOp& x, const kernels::ResidentOp& y) { return x.beside == y.beside; };
  const auto same = [&](const ResidentList& x, const ResidentList& y) {
    return x.together == y.together && std::equal(x.ops.begin(), x.ops.end(), y.ops.begin(), y.ops.end(), same_op);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

}  // namespace mainarch::amdgpu
