// SPDX-License-Identifier: MIT
#include "sim/isa/check/checker.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/isa/check/nops.h"
#include "sim/isa/check/undefined.h"
#include "sim/isa/check/waits.h"

namespace mainarch::sim::isa {

struct Checker::GroupState : public Observed {
  GroupState(size_t lds_bytes, size_t waves, bool known)
      : lds(lds_bytes, waves, known),
        nops(waves, NopCheck(known)),
        accesses(waves),
        race_ids(waves) {}
  LdsCheck lds;
  std::vector<NopCheck> nops;
  std::vector<Accesses> accesses;  // of each wave's current instruction
  std::vector<uint32_t> race_ids;
  std::unique_ptr<UndefinedCheck> undefined;
};

namespace {
constexpr size_t kMostNotes = 64;  // of one node, of races in LDS
}

Checker::Checker(const CheckOptions& options) : options_(options), races_(options.known) {}
Checker::~Checker() = default;

std::unique_ptr<LaunchWatch> Checker::Watch(const LaunchPlace& place) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t launch =
      options_.races ? races_.StartLaunch(place.gpu, place.process, place.context) : 0;
  std::unique_ptr<CachedLaunch> cached;
  if (options_.caches && place.context != nullptr) {
    cached = std::make_unique<CachedLaunch>(&caches_, &cache_mutex_, place.context, place.seed);
  }
  return std::make_unique<LaunchWatch>(this, launch, std::move(cached));
}

void Checker::Acquire(const GpuContext& context, Scope scope) {
  if (options_.caches) {
    std::lock_guard<std::mutex> lock(cache_mutex_);
    caches_.Acquire(context, scope);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  races_.Acquire(context.gpu_index(), context.process_id(), scope);
}

void Checker::Release(const GpuContext& context, Scope scope) {
  if (options_.caches) {
    std::lock_guard<std::mutex> lock(cache_mutex_);
    caches_.Release(context, scope);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  races_.Release(context.gpu_index(), context.process_id(), scope);
}

std::vector<std::string> Checker::TakeNotes() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> notes = races_.TakeNotes();
  notes.insert(notes.end(), notes_.begin(), notes_.end());
  notes_.clear();
  return notes;
}

std::string Checker::Look(Wave& w, const Op& op, GroupState& state) {
  const RowFacts& facts = table_.FactsOf(*op.inst.row);
  Accesses& accesses = state.accesses[w.index];
  FindAccesses(w, op, facts, &accesses);
  std::string what;
  if (options_.waits) {
    std::string note;
    what = state.lds.wave(w.index).Issue(w, op, &note);
    if (what.empty()) what = state.lds.Instruction(w.index, facts, accesses, &note);
    if (!note.empty() && noted_.size() < kMostNotes &&
        noted_.insert(static_cast<uint32_t>(w.at)).second) {
      notes_.push_back(absl::StrCat("checker: note: ", note, ", at pc ..",
                                    absl::Hex(static_cast<uint32_t>(w.at), absl::kZeroPad8)));
    }
    if (!what.empty()) return what;
  }
  const Effects effects = table_.Of(op);
  if (options_.nops) {
    HazardFinding finding;
    if (state.nops[w.index].Issue(w.group->isa, w.at, op, effects, &finding)) {
      return Describe(w.group->isa, finding);
    }
  }
  if (state.undefined != nullptr) {
    what = state.undefined->Issue(w, op, effects, accesses);
    if (!what.empty()) return what;
  }
  if (options_.races) what = races_.Issue(state.race_ids[w.index], w, op, facts, accesses);
  return what;
}

void LaunchWatch::Begin(Workgroup& group) {
  std::lock_guard<std::mutex> lock(checker_.mutex_);
  auto state = std::make_unique<Checker::GroupState>(group.lds.size(), group.waves.size(),
                                                      checker_.options_.known);
  if (checker_.options_.undefined) state->undefined = std::make_unique<UndefinedCheck>(group);
  for (uint32_t& id : state->race_ids) {
    if (checker_.options_.races) id = checker_.races_.StartWave(launch_, group.index);
  }
  group.observed = std::move(state);
  if (cached_ != nullptr) cached_->Begin(group);
}

bool LaunchWatch::Before(Wave& w, const Op& op) {
  if (op.descriptor == nullptr) return true;
  auto& state = static_cast<Checker::GroupState&>(*w.group->observed);
  {
    std::lock_guard<std::mutex> lock(checker_.mutex_);
    const std::string what = checker_.Look(w, op, state);
    if (!what.empty()) {
      w.Stop(StopReason::kCheck, absl::StrCat("checker: ", what));
      return false;
    }
  }
  if (cached_ != nullptr) {
    cached_->Before(w, op, checker_.table_.FactsOf(*op.inst.row), state.accesses[w.index]);
  }
  return true;
}

void LaunchWatch::After(Wave& w, const Op& op) {
  if (op.descriptor == nullptr) return;
  const RowFacts& facts = checker_.table_.FactsOf(*op.inst.row);
  auto& state = static_cast<Checker::GroupState&>(*w.group->observed);
  if (cached_ != nullptr) cached_->After(w, op, facts, state.accesses[w.index]);
  if (!facts.vmem || !checker_.options_.races) return;
  std::lock_guard<std::mutex> lock(checker_.mutex_);
  checker_.races_.Done(state.race_ids[w.index], op, facts, state.accesses[w.index]);
}

void LaunchWatch::Barrier(Workgroup& group) {
  std::lock_guard<std::mutex> lock(checker_.mutex_);
  auto& state = static_cast<Checker::GroupState&>(*group.observed);
  state.lds.Barrier();
  if (!checker_.options_.races) return;
  std::vector<uint32_t> waiting;
  for (const Wave& w : group.waves) {
    if (w.state == WaveState::kBarrier) waiting.push_back(state.race_ids[w.index]);
  }
  checker_.races_.Barrier(waiting);
}

void LaunchWatch::End() {
  std::lock_guard<std::mutex> lock(checker_.mutex_);
  if (!std::exchange(ended_, true) && launch_ != 0) checker_.races_.EndLaunch(launch_);
}

}  // namespace mainarch::sim::isa
