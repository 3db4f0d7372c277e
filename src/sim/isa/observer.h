// SPDX-License-Identifier: MIT
//
// The one place where checkers and the cache model look at a running kernel. With an observer, the
// grid runs a second instantiation of its instruction loop that tells it of every instruction
// before and after it has run; without one nothing of this is in the loop. An observer knows what
// an instruction does from the decoded Op and the wave's registers alone (check/effects.h,
// check/accesses.h), so no instruction's own code calls it.
//
// Threads: calls about different workgroups may come from different host threads at the same time.
#ifndef MAINARCH_SIM_ISA_OBSERVER_H_
#define MAINARCH_SIM_ISA_OBSERVER_H_

namespace mainarch::sim::isa {

struct Op;
struct Wave;
struct Workgroup;

class Observer {
 public:
  virtual ~Observer() = default;
  // All waves are set up and none has run. What the observer keeps of a workgroup goes into
  // Workgroup::observed.
  virtual void Begin(Workgroup& group) = 0;
  // Before an instruction: w.at is its address, w.pc still the same. False after stopping the wave.
  virtual bool Before(Wave& w, const Op& op) = 0;
  // After it has run without stopping the wave.
  virtual void After(Wave& w, const Op& op) = 0;
  // Every wave of the group that has not ended is at the barrier and is about to go on.
  virtual void Barrier(Workgroup& group) = 0;
};

// What an observer keeps of one workgroup.
class Observed {
 public:
  virtual ~Observed() = default;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_OBSERVER_H_
