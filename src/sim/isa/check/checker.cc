// SPDX-License-Identifier: MIT
#include "sim/isa/check/checker.h"

#include "sim/isa/check/waits.h"

namespace mainarch::sim::isa {

struct Checker::GroupState : public Observed {
  GroupState(size_t lds_bytes, size_t waves) : lds(lds_bytes, waves) {}
  LdsCheck lds;
};

CheckOptions CheckOptions::All() {
  CheckOptions options;
  options.waits = options.nops = true;
  return options;
}

Checker::Checker(const CheckOptions& options) : options_(options) {}
Checker::~Checker() = default;

void Checker::Begin(Workgroup& group) {
  group.observed = std::make_unique<GroupState>(group.lds.size(), group.waves.size());
}

std::string Checker::Look(Wave& w, const Op& op, GroupState& state) {
  const RowFacts& facts = table_.FactsOf(*op.inst.row);
  FindAccesses(w, op, facts, &accesses_);
  if (options_.waits) {
    std::string what = state.lds.wave(w.index).Issue(w, op);
    if (what.empty()) what = state.lds.Instruction(w.index, facts, accesses_);
    if (!what.empty()) return what;
  }
  return "";
}

bool Checker::Before(Wave& w, const Op& op) {
  if (op.descriptor == nullptr) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string what = Look(w, op, static_cast<GroupState&>(*w.group->observed));
  if (what.empty()) return true;
  w.Stop(StopReason::kCheck, what);
  return false;
}

void Checker::After(Wave&, const Op&) {}

void Checker::Barrier(Workgroup& group) {
  std::lock_guard<std::mutex> lock(mutex_);
  static_cast<GroupState&>(*group.observed).lds.Barrier();
}

}  // namespace mainarch::sim::isa
