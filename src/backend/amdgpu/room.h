// SPDX-License-Identifier: MIT
//
// Whether a kernel that stays has a place for each of its workgroups at once on every GPU of a group. They wait for each
// other, so one without a place would be waited for until the deadline. Two things are looked at:
//
//   other processes   the waves that the driver says they have there (kfd/occupancy.h). It does not say where: every
//                     compute unit that one of them may be on counts as taken.
//   other groups      of this process: what their kernels that stay have been given, from their first launch to the end
//                     of their engine. Packets of theirs end, and are waited for.
//
// Queues of this library have no mask: all compute units are theirs. What else is in the group's own queues is in front of
// the kernel or makes it leave (Gpus::Claim). Where the driver says nothing, the deadline is the guard, as it is against
// who comes later.
//
// Threads: the group's mutex is held.
#ifndef MAINARCH_BACKEND_AMDGPU_ROOM_H_
#define MAINARCH_BACKEND_AMDGPU_ROOM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/amdgpu/gpus.h"

namespace mainarch::amdgpu {

// Of one GPU, in compute units.
struct UnitBudget {
  uint64_t all = 0;
  uint64_t needed = 0;      // by the kernel's workgroups, side by side
  uint64_t unit_waves = 0;  // that one holds at most
  uint64_t taken = 0;       // filled by other processes' waves
  uint32_t processes = 0;   // so many
  uint64_t held = 0;        // by kernels of other groups of this process
  // How many others may be on.
  uint64_t touched() const;
  bool fits() const { return needed + touched() <= all; }
};

class Room {
 public:
  // `needed`: compute units, of each rank.
  Room(const Gpus& gpus, std::vector<uint32_t> needed);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Whether there is, as far as can be known; if so, it is this kernel's. An answer stands for a while. The log says when it
  // changes, and why.
  bool Look();

  // So long nobody is asked again: launches may be a step apart, and each look makes the driver walk the GPUs' queues.
  static constexpr int64_t kFreshNs = 10'000'000;
  static constexpr int64_t kRefusedNs = 100'000'000;

 private:
  std::string WhyNot() const;

  const Gpus& gpus_;
  const std::vector<uint32_t> needed_;
  std::vector<std::pair<int64_t, uint32_t>> places_;  // the process' number and the GPU's, of each rank
  bool fits_ = true;
  int64_t until_ = 0;  // ns, that fits_ stands
  bool held_ = false;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_ROOM_H_
