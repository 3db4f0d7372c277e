// SPDX-License-Identifier: MIT
//
// In a build without GPUs: the commands that are about them, each of which says so, and what of them others use.
#include "backend/without_gpus.h"

#include <cstdio>

#include "cli/command.h"
#include "cli/gpu_step_counts.h"
#include "cli/json_mode.h"
#include "cli/json_writer.h"
#include "cli/output.h"

namespace mainarch::cli {
namespace {

int Without(absl::string_view command) {
  return Fail(command, backend::WithoutGpus("this command is about GPUs"));
}

}  // namespace

int RunTopologyCommand(Arguments) { return Without("topology"); }
int RunSimCommand(Arguments) { return Without("sim"); }
int RunProbeCommand(Arguments) { return Without("probe"); }
int RunKernels(Arguments) { return Without("kernels"); }
int RunEstimate(Arguments) { return Without("estimate"); }
int RunTime(Arguments) { return Without("time"); }

// The form of a report on GPUs: none can be used, and why.
int RunDoctorCommand(Arguments) {
  const std::string what(backend::WithoutGpus("GPUs").message());
  constexpr char kRemedy[] = "mainarch generate --device cpu";
  if (JsonWanted()) {
    JsonWriter out;
    out.BeginObject().Field("usable_gpus", uint64_t{0}).Key("findings").BeginArray();
    out.BeginObject().Field("level", "problem").Field("what", what).Field("remedy", kRemedy).EndObject();
    out.EndArray().EndObject().Print();
  } else {
    std::printf("%-8s %s\n         -> %s\n0 usable GPUs\n", "problem", what.c_str(), kRemedy);
  }
  return kExitFailure;
}

void CountedGroup::Restart() {}
StatusOr<CountedGroup> OpenCounted(const std::string& text) {
  return backend::WithoutGpus("device \"sim:" + text + "\"");
}
Status CountLogged(const backend::LoadedModel&, const backend::ContextOptions&, const LoggedStep&,
                   sim::isa::CountLog*, TokenCounts*) {
  return backend::WithoutGpus("a count of kernels");
}

}  // namespace mainarch::cli
