// SPDX-License-Identifier: MIT
//
// Who says which wave of a grid steps next, and when. Without a pace a grid runs its waves in slices
// (grid.h), as fast as the host can; with one, Grid::Run hands over to it, and the pace steps wave
// by wave through Grid's stepping calls. The timing model (sim/time) is a pace: there the order in
// which instructions run is the order in which the modelled chip issues them.
#ifndef MAINARCH_SIM_ISA_PACE_H_
#define MAINARCH_SIM_ISA_PACE_H_

#include <cstdint>
#include <memory>

namespace mainarch::sim::isa {

class Grid;
struct GridResult;

// Whose launch it is, for the pace's report.
struct LaunchTicket {
  uint32_t gpu = 0, process = 0, queue = 0;
  uint8_t acquire = 0;  // the packet's fence scopes, 0 to 2
  uint8_t release = 0;
  bool barrier = true;  // starts after what was launched before on its queue has ended
};

// One grid in a pace's hands. Destroying it cancels the grid.
class PacedGrid {
 public:
  virtual ~PacedGrid() = default;
  // Steps about `budget` instructions, of this grid or of others that share its chip.
  virtual GridResult Run(uint64_t budget) = 0;
  // As Grid::DropTranslations, of every wave that Run may step.
  virtual void DropTranslations() = 0;
  // When it is done: its start and end on the pace's clock, in 100 MHz ticks.
  virtual void Times(uint64_t* start, uint64_t* end) const = 0;
};

class Pace {
 public:
  virtual ~Pace() = default;
  // The grid outlives what is returned.
  virtual std::unique_ptr<PacedGrid> Begin(Grid* grid) = 0;
  // A copy engine's queue has copied: GPUs' indices, or ~0 for the host.
  virtual void Copied(uint32_t gpu, uint32_t queue, uint32_t from, uint32_t to, uint64_t bytes) = 0;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_PACE_H_
