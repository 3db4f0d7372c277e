// SPDX-License-Identifier: MIT
//
// One decode step of a model's geometry under the clock, packet by packet. Layers are alike, so two of
// them run and stand for all.
#ifndef MAINARCH_CLI_TIME_STEP_H_
#define MAINARCH_CLI_TIME_STEP_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "backend/backend.h"
#include "cli/gpu_step_counts.h"
#include "cli/timed_node.h"
#include "model/config.h"
#include "model/synthetic.h"

namespace mainarch::cli {

struct StepTimeOptions {
  model::ModelConfig config;  // the whole model's
  model::SyntheticFormat format = model::SyntheticFormat::kBF16;
  backend::KvType kv = backend::KvType::kBF16;
  backend::Activations activations = backend::Activations::kF32;
  std::string isa = "gfx950";
  int32_t tp = 1;      // the model is shared by so many GPUs
  int32_t ranks = 1;   // of these so many run side by side
  int32_t layers = 2;  // that run
  uint32_t position = 1024;
  uint32_t rows = 1;  // of the sequence, as a step with drafts has them
  bool prompt = false;  // the last of them alone has logits
  Outcome outcome = Outcome::kLargest;  // of each row
  std::vector<std::string> params;
  bool spans = false;
  bool resident = false;  // by the resident kernel: ops from their beginning to the next one's
};

// All packets of one op's name, on rank 0.
struct OpTime {
  std::string name;
  uint32_t packets = 0;  // that ran
  double times = 0;      // ops in a step of the whole model
  double us = 0;         // one op: from the packet before it to its own end
  double floor_us = 0;   // the least it must read, at the streamed rate
  std::array<double, sim::timing::kLimits> limited_by = {};  // us of each
  double wait_us = 0;  // of it, one op: by the resident kernel, from when the first workgroup had done its part
  double waves_per_simd = 0, in_flight = 0;                  // means by time
};

struct StepTime {
  std::vector<OpTime> ops;
  double us = 0, floor_us = 0, wait_us = 0;  // of the whole model's step
  double run_us = 0;            // of what ran: first packet to last
  uint64_t instructions = 0;    // of wavefronts, all ranks
  double host_seconds = 0;      // of this machine, for the step
  sim::timing::Params params;
  std::vector<sim::timing::LaunchReport> launches;  // of all ranks
  std::vector<std::string> names;                   // of their ops
  std::vector<std::vector<backend::OpTimes>> resident;  // of each GPU, the ops that the resident kernel ran ...
  std::vector<std::string> resident_names;              // ... and theirs
  // From when the resident kernel is asked for a pause, at the worst moment, to when all its workgroups leave: within
  // the layers, and where it does not look, at a step's end and the next one's beginning.
  double pause_us = 0, pause_between_us = 0;
  std::vector<sim::timing::CopyReport> copies;
  Places places;
};

StatusOr<StepTime> TimeStep(const StepTimeOptions& options);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TIME_STEP_H_
