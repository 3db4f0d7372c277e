// SPDX-License-Identifier: MIT
//
// mainarch time: one launch of any kernel, described by a launch file.
#include "cli/time_command.h"

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"

namespace mainarch::cli {

int RunTime(Arguments arguments) {
  TimeSettings s;
  Options options(
      "time", "--launch FILE [options]",
      "Runs a kernel of any code object with the arguments, the grid and the buffers that a launch "
      "file describes, and compares what comes out with what the file expects. See "
      "mainarch-launch(5) for the file.",
      "mainarch time --launch scale.launch\n"
      "mainarch time --launch scale.launch --device gpu --json");
  options.Text("launch", "FILE", &s.launch, "the launch file");
  options.Text("device", "DEVICE", &s.device, "gpu, or sim:NODE for a virtual node");
  options.Integer("index", &s.gpu, 0, 15, "which GPU of the device");
  options.Number("timeout", &s.timeout, 0.001, 1e6, "seconds after which a run is given up");
  options.Flag("json", &s.json, "one JSON object on stdout");
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.launch.empty()) return options.Usage("--launch FILE is missing");
  const StatusOr<int> code = TimeLaunchFile(s);
  return code.ok() ? *code : Fail("time", code.status());
}

}  // namespace mainarch::cli
