// SPDX-License-Identifier: MIT
//
// The two halves of `mainarch time`: launch files, and steps of models.
#ifndef MAINARCH_CLI_TIME_COMMAND_H_
#define MAINARCH_CLI_TIME_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace mainarch::cli {

struct TimeSettings {
  std::string launch;  // path of a launch file
  std::string device = "sim:gfx950";
  int64_t gpu = 0;
  double timeout = 3600;  // seconds
  bool json = false;
};

// Returns the exit code.
StatusOr<int> TimeLaunchFile(const TimeSettings& settings);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TIME_COMMAND_H_
