// SPDX-License-Identifier: MIT
//
// Why taking an instruction away may change nothing: looks at a whole, unmutated kernel while its
// cases run and keeps, for every wait, nop, barrier and fence, whether it did anything on the paths
// that ran. Written without the checkers' rules: a wait did something if what it waited for was
// used before another wait covered it, a barrier if waves on its two sides touched the same bytes.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_EVIDENCE_H_
#define MAINARCH_TESTS_UNIT_KERNELS_EVIDENCE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/hash_map.h"
#include "sim/isa/check/accesses.h"
#include "sim/isa/check/effects.h"
#include "sim/isa/observer.h"
#include "unit/kernels/executor_runner.h"

namespace mainarch::kernels_test {

class Evidence : public sim::isa::Observer {
 public:
  // An object lies at `base` on some device; only instructions of `object` are looked at.
  explicit Evidence(absl::Span<const uint8_t> object) : object_(object) {}
  void Loaded(uint64_t base, uint64_t end, absl::Span<const uint8_t> object);
  void Mapped(uint64_t begin, uint64_t end, bool cached) { cached_[end] = {begin, cached}; }
  // Where jumps of the object go to.
  void Labels(std::set<uint64_t> labels) { labels_ = std::move(labels); }

  void Begin(sim::isa::Workgroup& group) override;
  bool Before(sim::isa::Wave& w, const sim::isa::Op& op) override;
  void After(sim::isa::Wave&, const sim::isa::Op&) override {}
  void Barrier(sim::isa::Workgroup& group) override;

  // By address in the object.
  bool Executed(uint64_t va) const { return sites_.count(va) != 0; }
  // Why the instruction can go; "" if it did something, or nothing is known of its kind.
  std::string WhyNothing(uint64_t va) const;
  std::string WhatItDid(uint64_t va) const;

 private:
  struct Group;
  struct Lane;
  struct Outstanding {
    bool vm = false, ds = false, scalar = false, store = false, flag = false;
    bool idle = false;  // a fence with nothing to do
    std::vector<sim::isa::Range> results;
    std::vector<sim::isa::Piece> pieces;
    uint64_t younger = 0;  // of its counter, issued since
    uint64_t site = 0;     // the wait that covered it
    bool crossed = false;  // a barrier
  };
  struct WaveTrack {
    std::vector<Outstanding> queue, covered;
    std::vector<uint64_t> path;      // addresses of the last instructions
    std::vector<uint64_t> after;     // and where each would go on
    uint64_t nop = 0, nop_left = 0;  // a straight way to it, and instructions to look at
    uint64_t invalidate = 0;         // site of the last, until something is loaded
    bool invalidated = false;        // since the last barrier
    uint64_t barrier = 0;
  };
  struct Bytes {
    uint32_t readers[4] = {}, writers[4] = {};  // masks of waves
  };
  using Touched = HashMap<uint64_t, Bytes>;
  // Of memory, four bytes at a time: the workgroup, 0 for none, kMany for several.
  struct Owners {
    uint32_t writer = 0, reader = 0;
  };
  static constexpr uint32_t kMany = ~0u;
  struct Site {
    std::string did, why;
  };

  void Did(uint64_t site, const std::string& what);
  void Wait(WaveTrack& t, uint64_t va, int imm);
  void Issue(Group& g, uint32_t wave, const sim::isa::Op& op, const sim::isa::RowFacts& facts,
             const sim::isa::Effects& effects, const sim::isa::Accesses& accesses);
  void Uses(WaveTrack& t, const sim::isa::Effects& effects);
  void Phases(Group& g, uint32_t wave, const sim::isa::Op& op, const sim::isa::RowFacts& facts,
              const sim::isa::Accesses& accesses);
  // Whether the access meets one of another workgroup.
  bool MeetsOthers(uint32_t group, const sim::isa::Accesses& accesses, bool atomic);
  bool Cached(const sim::isa::Accesses& accesses) const;
  void Fences(Group& g, uint32_t wave, uint64_t va, const sim::isa::RowFacts& facts);
  void Released(const Group& g, const WaveTrack& t, const char* by);
  void Nops(WaveTrack& t, uint64_t va, const sim::isa::Wave& w, const sim::isa::Op& op);

  const absl::Span<const uint8_t> object_;
  std::map<uint64_t, uint64_t> bases_;  // by end
  const sim::isa::EffectsTable table_;
  std::map<uint64_t, Site> sites_;
  std::map<uint64_t, std::pair<uint64_t, bool>> cached_;  // by end
  std::set<uint64_t> labels_;
  HashMap<uint64_t, Owners> owners_;
  // Loads that only a wait in front of a release covers: overwritten by others, they would race.
  struct ReleasedLoad {
    uint64_t site = 0;
    uint32_t group = 0;
  };
  HashMap<uint64_t, ReleasedLoad> released_;
  uint32_t groups_ = 0;
  size_t live_ = 0;  // waves
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_EVIDENCE_H_
