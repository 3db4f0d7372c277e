// SPDX-License-Identifier: MIT
//
// In a build without GPUs: the commands that are about them, each of which says so, and what of them others use.
#include "backend/without_gpus.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/attn_time.h"
#include "cli/command.h"
#include "cli/gpu_step_counts.h"
#include "cli/json_mode.h"
#include "cli/json_writer.h"
#include "cli/output.h"

namespace mainarch::cli {
namespace {

Status Why() { return backend::WithoutGpus("this command is about GPUs"); }

// What is asked for with --help is said, too.
std::optional<int> Helped(const char* command, Arguments arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") == arguments.end()) return std::nullopt;
  const std::string text = absl::StrCat("usage: mainarch ", command, "\n\n", Why().message(), "\n");
  JsonWanted() ? PrintJsonHelp(text) : static_cast<void>(std::fputs(text.c_str(), stdout));
  return kExitOk;
}

int Without(const char* command, Arguments arguments) {
  if (const auto code = Helped(command, arguments)) return *code;
  return Fail(command, Why());
}

}  // namespace

int RunTopologyCommand(Arguments arguments) { return Without("topology", arguments); }
int RunSimCommand(Arguments arguments) { return Without("sim", arguments); }
int RunProbeCommand(Arguments arguments) { return Without("probe", arguments); }
int RunKernels(Arguments arguments) { return Without("kernels", arguments); }
int RunEstimate(Arguments arguments) { return Without("estimate", arguments); }
int RunTime(Arguments arguments) { return Without("time", arguments); }

// The form of a report on GPUs: none can be used, and why.
int RunDoctorCommand(Arguments arguments) {
  if (const auto code = Helped("doctor", arguments)) return *code;
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

StatusOr<AttentionTime> TimeAttention(const model::ModelConfig&, int32_t, const std::string&,
                                      const backend::ContextOptions&, uint32_t) {
  return Why();
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
