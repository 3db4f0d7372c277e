// SPDX-License-Identifier: MIT
//
// `mainarch doctor`: why a GPU cannot be used, and what mends it. Looks at the PCI
// bus, the kernel module, the device files and their permissions, the driver's age, and who holds
// the memory. Changes nothing, and opens device files only to see whether it may.
#ifndef MAINARCH_CLI_DOCTOR_H_
#define MAINARCH_CLI_DOCTOR_H_

#include <string>
#include <vector>

#include "kfd/sys.h"

namespace mainarch::cli {

struct Finding {
  enum class Level { kGood, kNote, kProblem };
  Level level = Level::kGood;
  std::string what;
  std::string remedy;  // a command or what to do, or empty
};

struct Diagnosis {
  std::vector<Finding> findings;
  int usable_gpus = 0;
};

Diagnosis Diagnose(kfd::Sys& sys);

// Appends the report to `out`. 0 when at least one GPU can be used, 1 when none can.
int RunDoctor(kfd::Sys& sys, bool json, std::string* out);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_DOCTOR_H_
