// SPDX-License-Identifier: MIT
//
// Runs a launch file on a GPU behind the driver seam: a real one or a virtual node's. What the file
// says is held against what the code object and the chip say before anything runs; afterwards
// against what came out.
#ifndef MAINARCH_CLI_LAUNCH_RUN_H_
#define MAINARCH_CLI_LAUNCH_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/launch/fill.h"
#include "cli/launch/launch_file.h"
#include "isa/kernel_images.h"
#include "kfd/sys.h"

namespace mainarch::cli {

struct LaunchOptions {
  uint32_t gpu = 0;
  int64_t timeout_ms = 3'600'000;  // of each run
  // Told after the code is in place and buffers are filled, before each run; may be empty.
  std::function<void(uint32_t run)> before_run;
};

struct LaunchResult {
  std::string isa, device;  // "gfx950", "gpu 0 (gfx950, ...)"
  // What the machine allocates to a wave, from the descriptor.
  uint32_t vgprs = 0, sgprs = 0;
  uint32_t static_lds = 0, scratch = 0, kernarg = 0;
  uint32_t compute_units = 0;
  isa::Occupancy occupancy;
  uint64_t workgroups = 0;
  uint32_t waves = 0;  // of a workgroup
  uint64_t kernel_object = 0;             // where its descriptor was
  uint64_t code_va = 0, code_bytes = 0;  // and the object
  // Begin to end by the GPU's clock of 100 MHz, of each run. Of a virtual node: its host's time, which
  // says nothing.
  std::vector<double> microseconds;
  std::vector<Comparison> comparisons;  // in the file's order
  bool ok() const;
};

// InvalidArgument names file and line, the value, and the limit of the object or the chip that it
// breaks; errors of the run are the queue's and the driver's own.
StatusOr<LaunchResult> RunLaunch(kfd::Sys& sys, const LaunchFile& launch, const LaunchOptions& options);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_LAUNCH_RUN_H_
