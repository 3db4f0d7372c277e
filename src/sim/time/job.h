// SPDX-License-Identifier: MIT
//
// One launch on the modelled chip: where it stands, and what its report is made of.
#ifndef MAINARCH_SIM_TIME_JOB_H_
#define MAINARCH_SIM_TIME_JOB_H_

#include <array>
#include <cstdint>
#include <vector>

#include "sim/isa/grid.h"
#include "sim/time/report.h"
#include "sim/time/unit.h"

namespace mainarch::sim::timing {

class Gpu;

// Bytes in flight over time, in steps that double when the launch outgrows them.
class Flight {
 public:
  void Start(Clocks at) { start_ = at; }
  void Add(Clocks from, Clocks to, double bytes);
  // Means over steps; *step gets their length.
  std::vector<double> Means(Clocks end, Clocks* step) const;
  double byte_clocks() const { return byte_clocks_; }

 private:
  static constexpr size_t kSteps = 512;
  size_t StepOf(Clocks at);
  void Fold();
  Clocks start_ = 0, step_ = 64;
  std::array<double, kSteps> change_ = {};  // bytes that start or stop being in flight in a step
  std::array<double, kSteps> inside_ = {};  // byte-clocks of those parts of a step
  double byte_clocks_ = 0;
};

class Job : public isa::PacedGrid {
 public:
  Job(Gpu* gpu, isa::Grid* grid);
  ~Job() override;
  isa::GridResult Run(uint64_t budget) override;
  void DropTranslations() override;
  void Times(uint64_t* start, uint64_t* end) const override;

 private:
  friend class Gpu;
  friend class Issue;
  struct Wait {
    uint64_t times = 0;
    Clocks clocks = 0;
    std::array<Clocks, kLimits> by = {};
  };

  void Spend(Limit limit, Clocks clocks) { spent[static_cast<size_t>(limit)] += clocks; }
  void WaitedAt(uint64_t pc, const Pending& p, Clocks clocks);
  void Fill(LaunchReport* report) const;

  Gpu& gpu_;
  isa::Grid& grid_;
  const isa::LaunchTicket ticket_;
  uint32_t registers_ = 0, lds_ = 0, waves_a_group_ = 1;
  uint64_t groups_ = 0, groups_ended_ = 0;
  std::vector<uint64_t> next_;  // of each XCC, the next workgroup
  Clocks packet_ = 0, dispatch_ = 0, first_wave_ = kNever, last_wave_ = 0, drained_ = 0, end_ = 0;
  bool ended_ = false;
  isa::GridResult result_;
  uint64_t live_waves_ = 0, idle_waves_ = 0;

  std::array<Clocks, kLimits> spent = {};  // of waves' lives
  Clocks wave_clocks_ = 0;
  uint64_t units_used_ = 0;
  std::vector<bool> used_;  // [unit]
  MemoryBytes before_;      // the chip's counts when it began
  MemoryBytes own_;         // asked, l1_hit, lds, scalar
  Flight flight_;
  std::vector<Wait> waits_;                 // by offset from the entry, in dwords
  std::vector<GroupSpan> spans_;
  std::string name_;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_JOB_H_
