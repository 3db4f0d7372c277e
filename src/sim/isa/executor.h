// SPDX-License-Identifier: MIT
//
// The interpreter as the virtual node's Executor: a dispatch becomes a Grid over the process's page
// tables. Decoded code is kept for each address space until its instruction caches are invalidated.
// See sim/executor.h for who calls what from which thread.
#ifndef MAINARCH_SIM_ISA_EXECUTOR_H_
#define MAINARCH_SIM_ISA_EXECUTOR_H_

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "sim/executor.h"
#include "sim/isa/check/checker.h"
#include "sim/isa/counters.h"
#include "sim/isa/grid.h"
#include "sim/isa/lines.h"
#include "sim/isa/gws.h"
#include "sim/isa/pace.h"

namespace mainarch::sim::isa {

struct ExecutorOptions {
  int threads = 1;  // host threads of one dispatch; more than one gives up the fixed interleaving
  LaneCode lanes = BestLaneCode();
  bool exact_matrix = false;         // matrix_exact.h
  uint32_t slice = kSlice;           // instructions of a wave's turn, at most
  bool matrix = true;                // false: products of matrices are not computed (InstructionSet)
  bool run_errata = false;           // encodings with an erratum run, and are noted
  CheckOptions check;                // a finding is reported as an illegal instruction
  Observer* observer = nullptr;      // told of every instruction; not with checks; outlives us
  // Of objects that may be loaded: a report names the source line where one of them has it.
  std::vector<std::shared_ptr<const LineTable>> lines;
  std::shared_ptr<CountLog> counts;  // gets the counts of every dispatch that ends; null: none
  bool footprint = false;            // with the lines of memory that each dispatch used
  std::shared_ptr<Pace> pace;        // the timing model (sim/time/clock.h); null: none
};

class IsaExecutor : public Executor {
 public:
  explicit IsaExecutor(const ExecutorOptions& options = {});

  StatusOr<std::unique_ptr<Launch>> Start(const Dispatch& dispatch) override;
  void Acquire(GpuContext& context, Scope scope) override;
  void Release(GpuContext& context, Scope scope) override;
  void Copied(GpuContext& context, uint32_t queue, uint32_t from, uint32_t to,
              uint64_t bytes) override;
  void InvalidateInstructions(GpuContext& context) override;
  void Forget(const GpuContext& context) override;
  // Checkers know all GPUs of a node, under one lock; so does a pace, which has one order of events.
  bool parallel() const override { return checker_ == nullptr && options_.pace == nullptr; }

 private:
  // GPU and process, which share code, and the ISA.
  using Key = std::tuple<uint32_t, uint32_t>;
  struct Code {
    std::shared_ptr<InstructionSet> set;
    std::shared_ptr<Program> program;
  };
  StatusOr<Code> CodeOf(const GpuContext& context);
  std::shared_ptr<Gws> GwsOf(const GpuContext& context);
  void DropCode(const GpuContext& context);
  static LaunchTicket TicketOf(const Dispatch& dispatch);

  const ExecutorOptions options_;
  const std::unique_ptr<Checker> checker_;  // null when nothing is checked
  std::mutex mutex_;
  std::map<Isa, std::shared_ptr<InstructionSet>> sets_;
  std::map<Key, Code> code_;
  std::map<Key, std::shared_ptr<Gws>> gws_;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_EXECUTOR_H_
