// SPDX-License-Identifier: MIT
//
// All checkers behind one observer. What each proves, and what it cannot, is in README.md of this
// folder. A checker belongs to a node: it outlives every launch, and what it knows of memory goes
// from one launch to the next.
//
// Threads: any; calls take one lock, so checked kernels run on one host thread at a time.
#ifndef MAINARCH_SIM_ISA_CHECK_CHECKER_H_
#define MAINARCH_SIM_ISA_CHECK_CHECKER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "sim/isa/check/accesses.h"
#include "sim/isa/check/effects.h"
#include "sim/isa/observer.h"

namespace mainarch::sim::isa {

struct CheckOptions {
  bool waits = false;  // s_waitcnt, and races in LDS
  bool nops = false;   // wait states between instructions

  bool any() const { return waits || nops; }
  static CheckOptions All();
};

class Checker : public Observer {
 public:
  explicit Checker(const CheckOptions& options);
  ~Checker() override;

  void Begin(Workgroup& group) override;
  bool Before(Wave& w, const Op& op) override;
  void After(Wave& w, const Op& op) override;
  void Barrier(Workgroup& group) override;

 private:
  struct GroupState;
  std::string Look(Wave& w, const Op& op, GroupState& state);

  const CheckOptions options_;
  const EffectsTable table_;
  std::mutex mutex_;
  Accesses accesses_;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_CHECKER_H_
