// SPDX-License-Identifier: MIT
//
// The subcommands of `mainarch`. Each is a function in a file of its own and a line of the table in
// main.cc; it gets the words after its name and returns the exit code of the process.
#ifndef MAINARCH_CLI_COMMAND_H_
#define MAINARCH_CLI_COMMAND_H_

#include <string>

#include "absl/types/span.h"

namespace mainarch::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells say it

using Arguments = absl::Span<const std::string>;

struct Command {
  const char* name;
  const char* help;  // one line
  int (*run)(Arguments arguments);
};

int RunGenerate(Arguments arguments);
int RunModelDecode(Arguments arguments);
int RunAttnDecode(Arguments arguments);
int RunKvAccuracy(Arguments arguments);
int RunBench(Arguments arguments);
int RunEmbed(Arguments arguments);
int RunTokenize(Arguments arguments);
int RunInspect(Arguments arguments);
int RunMakeCheckpoint(Arguments arguments);
int RunTopologyCommand(Arguments arguments);
int RunDoctorCommand(Arguments arguments);
int RunSimCommand(Arguments arguments);
int RunProbeCommand(Arguments arguments);
int RunKernels(Arguments arguments);
int RunAllReduceBench(Arguments arguments);
int RunEstimate(Arguments arguments);
int RunTime(Arguments arguments);
int RunVersion(Arguments arguments);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_COMMAND_H_
