// SPDX-License-Identifier: MIT
//
// One modelled chip: deals workgroups out to compute units and lets their waves issue in the order of
// time. A compute unit may run ahead of the others by a small quantum, but not with an access that
// other compute units may be waiting for: those happen in the order of time on the whole chip.
#ifndef MAINARCH_SIM_TIME_GPU_H_
#define MAINARCH_SIM_TIME_GPU_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/isa/grid.h"
#include "sim/time/clock.h"
#include "sim/time/job.h"
#include "sim/time/memory.h"
#include "sim/time/op_time.h"
#include "sim/time/shape.h"
#include "sim/time/unit.h"

namespace mainarch::sim::timing {

// Compute units by when they issue next.
class UnitQueue {
 public:
  explicit UnitQueue(size_t units);
  void Set(size_t unit, uint64_t key);
  uint64_t first_key() const { return keys_[tree_[1]]; }
  size_t first() const { return tree_[1]; }
  // The earliest of all but the first.
  uint64_t second_key() const;

 private:
  size_t leaves_;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> tree_;  // of the smaller unit of each pair
};

class Gpu {
 public:
  Gpu(Clock* clock, uint32_t index, isa::Isa isa, const Params& params, const ClockOptions& options,
      const isa::ChipLimits& limits);

  void Add(Job* job);
  void Remove(Job* job);
  isa::GridResult Run(Job* job, uint64_t budget);

  // The page tables changed: what waves remember of them is void.
  void DropTranslations();
  void Flush();
  void Copy(uint32_t queue, uint32_t from, uint32_t to, uint64_t bytes, CopyReport* report);
  Clocks now() const { return now_; }
  // Where it stands for GPUs that must not run ahead of it; kNever when it has nothing to do.
  Clocks standing() const;
  const Params& params() const { return params_; }
  // A peer's store, on its way to this GPU's memory.
  struct Landing {
    const Job* job;                                     // the peer's
    std::vector<std::pair<uint64_t, uint32_t>> pieces;  // address and bytes
    std::vector<uint8_t> data;
  };
  void Deliver(Clocks at, Landing landing) { landings_.emplace(at, std::move(landing)); }
  // Stores that are here by `until` become visible; only those of one job, unless that is null.
  void Land(Clocks until, const Job* job);
  void Forget(const Job* job);
  uint32_t index() const { return index_; }

 private:
  friend class Job;

  struct Xcc {
    Clocks next_start = 0;  // of the dispatcher
    size_t next_unit = 0;
  };
  // A piece of memory, and where it is modelled to lie: the line of an address va there is Line(va, 7).
  struct Spot {
    uint64_t begin = 0, end = 0, shift = 0;
    isa::Where where;

    bool Holds(uint64_t va) const { return va >= begin && va < end; }
    uint64_t Line(uint64_t va, int bits) const { return (va + shift) >> bits; }
  };

  // Dispatch.
  void Place(uint32_t xcc, Clocks at);
  bool Fits(const ComputeUnit& unit, const Job& job) const;
  void StartGroup(Job* job, ComputeUnit* unit, size_t number, Clocks at);
  void EndWave(ComputeUnit* unit, int slot, Clocks at);
  void EndGroup(ComputeUnit* unit, Group* group, Clocks at);
  void PassBarrier(ComputeUnit* unit, Group* group, Clocks at);
  void Stop(Job* job, const isa::Wave& wave);
  void Complete(Job* job);
  void Waiting(Job* job);

  // Issue, in issue.cc.
  uint64_t RunUnit(size_t unit);
  uint64_t Issue(ComputeUnit* unit, int slot, Clocks at);
  uint64_t StepAndGoOn(ComputeUnit* unit, int slot, Clocks at, Clocks next);
  Clocks FetchCode(ComputeUnit* unit, WaveSlot* slot, Clocks at);
  Clocks Depend(WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueVector(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueMatrix(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueVmem(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueFence(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueLds(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueSmem(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at);
  Clocks IssueWait(WaveSlot* slot, const OpTime& t, Clocks at);
  static Clocks Room(ComputeUnit* unit, Clocks at);
  static void Takes(ComputeUnit* unit, Clocks at, Clocks goes, Done* done);
  Done Lines(ComputeUnit* unit, const OpTime& t, const isa::Wave& w, const Spot& first, Clocks starts,
             Clocks cost, Job* job);
  void PushVm(WaveSlot* slot, const OpTime& t, Done done, Clocks* at);
  Spot SpotOf(const isa::Wave& w, uint64_t va);
  uint64_t StepLater(ComputeUnit* unit, int slot, Clocks at, Clocks next);
  static bool IsSync(const OpTime& t);
  static void Busy(WaveSlot* slot);
  SharedCaches& SharedOf(const ComputeUnit& unit);

  Clock& clock_;
  const uint32_t index_;
  const isa::Isa isa_;
  const Params params_;
  const ClockOptions& options_;
  const isa::ChipLimits limits_;
  const std::shared_ptr<OpTimes> ops_;
  MemorySystem memory_;
  std::vector<ComputeUnit> units_;
  std::vector<SharedCaches> shared_;
  std::vector<Xcc> xccs_;
  UnitQueue queue_;
  std::vector<Job*> jobs_;  // in the order in which they came
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Group*> spare_groups_;
  std::multimap<Clocks, Landing> landings_;  // by when they get here
  std::map<uint32_t, Clocks> queue_free_;   // [queue]: its last packet is complete
  std::map<uint32_t, Clocks> queue_ahead_;  // [queue]: its packet processor may take the next
  std::map<uint32_t, Clocks> copy_free_;
  Clocks now_ = 0;
  uint32_t waits_without_ = 0;  // calls that found all GPUs waiting
  uint64_t began_ = 0;

  // Integers of the parameters.
  Clocks issue_, l1_latency_, smem_hit_, lds_latency_, barrier_;
  int lds_bytes_;
  Shape shape_;
  std::array<Spot, 16> spots_ = {};  // [hash of a view's begin]
  Clocks lands_ = kNever;    // of the store that is being issued: when a peer has it
  uint16_t lands_peer_ = 0;  // which
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_GPU_H_
