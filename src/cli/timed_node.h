// SPDX-License-Identifier: MIT
//
// A virtual node with a clock: what `mainarch time` runs on, and what it prints of the clock's reports.
// Every time here is modelled; whoever prints one prints ModelError beside it.
#ifndef MAINARCH_CLI_TIMED_NODE_H_
#define MAINARCH_CLI_TIMED_NODE_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"
#include "cli/json_writer.h"
#include "sim/isa/lines.h"
#include "sim/sim_sys.h"
#include "sim/time/clock.h"

namespace mainarch::cli {

struct TimedNode {
  std::shared_ptr<sim::timing::Clock> clock;
  std::shared_ptr<sim::SimSys> sys;
  sim::timing::Params params;  // of its chip, with what was set
};
struct TimedOptions {
  std::vector<std::string> params;  // "name=value", over the chip's own
  bool spans = false;
  // False: products of matrices are not computed. Times are the same where values steer nothing.
  bool matrix = true;
};
// `text` as behind "sim:" in a device string, without a list of GPUs.
StatusOr<TimedNode> OpenTimed(const std::string& text, const TimedOptions& options);

// How far the model has been off, against what, in one line.
std::string ModelError(absl::string_view isa);

// Where an instruction is: a source line, where a table has it, and always the byte of the kernel.
class Places {
 public:
  // A code object that was loaded at `va`; one without lines says nothing.
  void Add(uint64_t va, uint64_t size, absl::Span<const uint8_t> elf);
  std::string Find(uint64_t entry, uint64_t pc) const;

 private:
  struct Loaded {
    uint64_t va = 0, size = 0;
    std::unique_ptr<sim::isa::LineTable> lines;
  };
  std::vector<Loaded> loaded_;
};

// Microseconds that the launch's bytes from memory take at the streamed rate.
double MemoryFloorUs(const sim::timing::LaunchReport& report, const sim::timing::Params& params);
// "hbm 61 %, latency 20 %, issue 8 %": shares of 5 % and more.
std::string LimitsText(const sim::timing::LaunchReport& report);

// One launch's facts, for people and, as fields of an object that is open, for --json.
void PrintLaunchTime(const sim::timing::LaunchReport& report, const sim::timing::Params& params,
                     const Places& places, size_t most_waits);
void WriteLaunchTime(const sim::timing::LaunchReport& report, const sim::timing::Params& params,
                     const Places& places, JsonWriter* out);

// What a resident kernel ran: of each GPU, the ops with their times, and the end's; the ops' names.
struct ResidentTrace {
  absl::Span<const std::vector<backend::OpTimes>> gpus;
  absl::Span<const std::string> names;
};
// A timeline in the JSON that Chrome and Perfetto open: packets, workgroups by compute unit, bytes in
// flight, copies, ops of a resident kernel. `names` are of the launches, beside their kernels'; empty or as many.
Status WriteTrace(const std::string& path, absl::Span<const sim::timing::LaunchReport> launches,
                  absl::Span<const std::string> names, absl::Span<const sim::timing::CopyReport> copies,
                  const ResidentTrace& resident = {});

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TIMED_NODE_H_
