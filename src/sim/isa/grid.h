// SPDX-License-Identifier: MIT
//
// One kernel in flight: its workgroups, which of them are resident on the chip, and whose turn it
// is to run. Waves run in slices; a wave that sleeps, waits at a barrier or has used its slice
// gives way to the next, so persistent kernels with grid barriers make progress. The order is drawn
// from a seed: with one thread the same seed gives the same interleaving.
//
// Run may use several host threads, each with its own Memory; waves of one workgroup never run at
// the same time. No thread is left running when Run returns.
#ifndef MAINARCH_SIM_ISA_GRID_H_
#define MAINARCH_SIM_ISA_GRID_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "isa/chip.h"
#include "sim/isa/pace.h"
#include "sim/isa/program.h"
#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

class LineTable;

// Instructions of a wave's turn, unless somebody says otherwise (node setting `slice`).
constexpr uint32_t kSlice = 2048;

// Of the chip, for residency; an MI355X's where nothing else is said.
struct ChipLimits {
  static constexpr const ::mainarch::isa::ChipFacts& kChip = ::mainarch::isa::kGfx950;
  uint32_t xccs = kChip.xccs, cus_per_xcc = kChip.cus_per_xcc, simds_per_cu = kChip.simds_per_cu,
           waves_per_simd = kChip.waves_per_simd;
  uint32_t lds_bytes = kChip.lds_bytes, lds_granule = kChip.lds_granule;
};

// What the packet and the kernel descriptor say, decoded.
struct KernelLaunch {
  uint64_t entry = 0;
  std::array<uint32_t, 3> grid = {1, 1, 1}, workgroup = {1, 1, 1};  // work-items
  uint64_t kernarg = 0, packet = 0, queue = 0, dispatch_id = 0;
  uint32_t lds_bytes = 0, private_bytes = 0;
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0, preload = 0;
  // Instead of what the properties ask for (PM4 dispatches): what the user SGPRs hold.
  bool has_user_data = false;
  std::array<uint32_t, 16> user_data = {};
  uint32_t first_xcc = 0;
  uint64_t seed = 0;
  bool exact_matrix = false;  // matrix products to the bit of the published model, slowly
  uint32_t slice = kSlice;    // instructions of a wave's turn, at most
  uint64_t descriptor = 0;       // address of the kernel descriptor, for the kernel's name; 0: none
  Observer* observer = nullptr;  // outlives the grid
  Pace* pace = nullptr;          // pace.h; outlives the grid
  LaunchTicket ticket;           // for the pace
  // Of objects that may be the kernel's, for the source line in a report; outlive the grid.
  std::vector<std::shared_ptr<const LineTable>> lines;
};

// Reads the fields of a 64-byte kernel descriptor; refuses what no firmware would accept.
Status ReadDescriptor(const uint8_t descriptor[64], KernelLaunch* launch);

// How many workgroups of this kernel the chip holds at once; 0 when not even one fits.
uint64_t ResidentWorkgroups(const KernelLaunch& launch, const ChipLimits& limits);

enum class GridState { kRunning, kWaiting, kDone, kStopped };
struct GridResult {
  GridState state = GridState::kRunning;
  StopReason reason = StopReason::kNone;
  AccessFault fault;
  std::string detail;
};

class Grid {
 public:
  using State = GridState;
  using Result = GridResult;

  // The program and the memories outlive the grid; one memory a host thread.
  static StatusOr<std::unique_ptr<Grid>> Create(Program* program, const KernelLaunch& launch,
                                                const ChipLimits& limits,
                                                std::vector<Memory*> memories);

  // About `budget` wave-instructions.
  Result Run(uint64_t budget);
  // The page tables changed since the last Run: what waves remember of them is void.
  void DropTranslations();
  // With a pace, of a grid that is done; see PacedGrid::Times. False without one.
  bool Times(uint64_t* start, uint64_t* end) const;
  uint64_t instructions() const { return instructions_; }
  uint64_t resident_limit() const { return resident_limit_; }
  uint64_t workgroups() const { return total_; }
  // Of its workgroups, between two Runs; with a pace, of as many as there is room for.
  uint64_t waves() const { return (paced_ == nullptr ? active_ : std::min(resident_limit_, total_)) * waves_per_group(); }

  // For a pace, which has the grid to itself: workgroups in their order, waves step by step.
  const KernelLaunch& launch() const { return launch_; }
  const ChipLimits& limits() const { return limits_; }
  Isa isa() const { return program_.set().isa(); }
  Memory* memory() const { return memories_[0]; }
  Program& program() const { return program_; }
  uint32_t waves_per_group() const;
  // A workgroup, its waves set up; each index below workgroups() once.
  std::unique_ptr<Workgroup> StartAt(uint64_t index);
  // The instruction at w.pc; null after stopping the wave.
  const Op* First(Wave& w, Program::Chunk** chunk);
  // Runs `op`, on which the wave stands. The next one; null when the wave runs no further for now,
  // as its state says. *ran counts instructions: GPR indexing runs several.
  const Op* Step(Wave& w, const Op& op, Program::Chunk** chunk, uint64_t* ran);
  // Releases the waves at the barrier when all live ones stand there; whether it did.
  bool PassBarrier(Workgroup* group);
  // Of a group all of whose waves have ended.
  void End(std::unique_ptr<Workgroup> group) { program_.KeepSpare(std::move(group)); }
  // Where and in which kernel a wave stopped, and why.
  std::string Report(const Wave& w, Memory* memory) const;
  std::string Name() const;  // of the kernel, when its object tells

 private:
  Grid(Program* program, const KernelLaunch& launch, std::vector<Memory*> memories)
      : program_(*program), launch_(launch), memories_(std::move(memories)) {}

  void Work(Memory* memory, uint64_t budget);
  std::unique_ptr<Workgroup> Next();
  void Admit();
  std::unique_ptr<Workgroup> Start(uint64_t index);
  void SetUp(Workgroup* group, Memory* memory);
  void SetItems(Wave& w);
  void InitWave(Workgroup* group, uint32_t index, Memory* memory, bool fill);
  // Runs each wave of the group once; the instructions run, and whether any did more than wait.
  uint64_t RunGroup(Workgroup* group, Memory* memory, bool* busy);
  const Op* Fetch(Wave& w, Program::Chunk** chunk);
  const Op* Straight(Wave& w, const Op& op, Program::Chunk** chunk);
  // kObserved: with launch_.observer told of every instruction.
  template <bool kObserved>
  uint64_t RunWave(Wave& w, uint64_t slice, Program::Chunk** chunk);
  template <bool kObserved>
  uint64_t RunIndexed(Wave& w, Program::Chunk** chunk);
  void ReleaseBarrier(Workgroup* group);
  uint64_t NextRandom();

  Program& program_;
  const KernelLaunch launch_;
  const std::vector<Memory*> memories_;
  std::array<uint32_t, 3> groups_ = {1, 1, 1};
  uint64_t total_ = 0, next_ = 0, resident_limit_ = 0;
  uint32_t xccs_ = 1, cus_per_xcc_ = 1;
  uint32_t neighbours_ = 1;  // workgroups of an XCC, one behind the other, that a compute unit gets
  ChipLimits limits_;
  uint64_t instructions_ = 0;

  std::mutex mutex_;  // guards what follows while Run's threads work
  std::deque<std::unique_ptr<Workgroup>> ready_;
  uint64_t active_ = 0;                                        // started and not ended
  uint64_t idle_turns_ = 0;                                    // slices since one did work
  uint64_t used_ = 0;                                          // of the budget of this Run
  uint64_t window_ = 0;                                        // workgroups worked on at a time
  uint64_t window_turns_ = 0;
  uint64_t random_ = 0;
  bool waiting_ = false;
  bool quiet_ = false;  // it has waited, and nobody has done more since; a Run may be too short to find out again
  Result result_;
  std::unique_ptr<PacedGrid> paced_;  // null without a pace; goes before all else
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_GRID_H_
