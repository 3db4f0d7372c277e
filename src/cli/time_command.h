// SPDX-License-Identifier: MIT
//
// The two halves of `mainarch time`: launch files, and steps of models.
#ifndef MAINARCH_CLI_TIME_COMMAND_H_
#define MAINARCH_CLI_TIME_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/geometry.h"
#include "cli/model_options.h"

namespace mainarch::cli {

struct TimeSettings {
  std::string device = "sim:gfx950";
  std::string trace;
  std::vector<std::string> params;
  int64_t waits = 10;  // rows of the table
  bool json = false;
  // Of launch files.
  std::string launch;
  int64_t gpu = 0;
  double timeout = 3600;  // seconds
  bool clock = true;
  bool results = true;  // false: products of matrices are not computed, nothing is compared or written
  // Of steps.
  GeometryOptions geometry{"qwen3-235b-a22b"};
  std::string format = "bf16", kv = "bf16";
  bool resident = false;
  int64_t tp = 8, ranks = 1, rows = 1, run_layers = 2, context = 1024;
  std::string choose = "largest";
  bool packets = false, prompt = false;
  ModelOptions rounding;  // of it fast and mxfp8
};

// Each returns the exit code.
StatusOr<int> TimeLaunchFile(const TimeSettings& settings);
StatusOr<int> TimeModelStep(const TimeSettings& settings);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TIME_COMMAND_H_
