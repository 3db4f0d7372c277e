// SPDX-License-Identifier: MIT
#include <cstdio>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/command.h"
#include "cli/json_writer.h"
#include "cli/launch/run.h"
#include "cli/output.h"
#include "cli/time_command.h"
#include "cli/timed_node.h"
#include "kfd/linux_sys.h"
#include "sim/open.h"

namespace mainarch::cli {
namespace {

// A device, with a clock where one is wanted and can be.
struct Opened {
  std::shared_ptr<kfd::Sys> sys;
  TimedNode timed;  // without a clock: empty
};
StatusOr<Opened> OpenDevice(const TimeSettings& s) {
  Opened out;
  absl::string_view node = s.device;
  if (s.device == "gpu") {
    out.sys = std::make_shared<kfd::LinuxSys>();
  } else if (!absl::ConsumePrefix(&node, "sim:")) {
    return Error(Code::kInvalidArgument, "--device \"", s.device,
                 "\": expected \"gpu\" or \"sim:\" and a node such as gfx950");
  } else if (s.clock) {
    ASSIGN_OR_RETURN(out.timed, OpenTimed(std::string(node), {s.params, !s.trace.empty(), s.results}));
    out.sys = out.timed.sys;
  } else {
    ASSIGN_OR_RETURN(out.sys, sim::OpenSim(node));
  }
  if (out.timed.clock == nullptr && !s.trace.empty()) {
    return Error(Code::kInvalidArgument, "--trace: only of what is modelled: --device sim:NODE, with the clock");
  }
  return out;
}

// The launches of the file's own kernel, in order.
std::vector<sim::timing::LaunchReport> OwnReports(const Opened& device, const LaunchResult& result) {
  std::vector<sim::timing::LaunchReport> own;
  for (sim::timing::LaunchReport& report : device.timed.clock->Take()) {
    if (report.kernel_object == result.kernel_object) own.push_back(std::move(report));
  }
  return own;
}

std::string What(const Expectation& e) {
  switch (e.kind) {
    case Expectation::Kind::kFile:
      return e.path;
    case Expectation::Kind::kValue:
      return absl::StrCat(e.value);
    case Expectation::Kind::kSum:
      return "a sum";
  }
  return "";
}

void PrintText(const LaunchFile& launch, const LaunchResult& r) {
  Facts facts;
  facts.Add("kernel", absl::StrCat(launch.kernel, " of ", launch.object));
  facts.Add("device", r.device);
  facts.Add("grid", absl::StrCat(absl::StrJoin(launch.workgroups, " x "), " workgroups of ",
                                 absl::StrJoin(launch.workgroup, " x "), ", ", r.workgroups, " of ", r.waves, " waves"));
  facts.Add("of a wave", absl::StrCat(r.vgprs, " VGPRs, ", r.sgprs, " SGPRs, ", r.scratch, " bytes of scratch a lane"));
  facts.Add("LDS", absl::StrCat(r.static_lds, " static, ", launch.lds, " dynamic"));
  facts.Add("fits", absl::StrCat(r.occupancy.groups_per_cu, " workgroups a compute unit (", r.occupancy.limit, ")"));
  facts.Print();
  for (const Comparison& c : r.comparisons) {
    const Expectation& e = *c.expectation;
    if (e.kind == Expectation::Kind::kSum) {
      std::printf("%s: sum %s: %s\n", e.buffer.c_str(), absl::StrFormat("%016x", c.sum).c_str(),
                  c.ok() ? "as expected" : c.first.c_str());
      continue;
    }
    std::printf("%s against %s: %llu elements, off by at most %s (%s relative): %s\n", e.buffer.c_str(), What(e).c_str(),
                static_cast<unsigned long long>(c.elements), absl::StrFormat("%.3g", c.worst_absolute).c_str(),
                absl::StrFormat("%.3g", c.worst_relative).c_str(),
                c.ok() ? "as expected" : absl::StrCat(c.wrong, " WRONG; ", c.first).c_str());
  }
}

void WriteJson(const LaunchFile& launch, const LaunchResult& r, JsonWriter* out) {
  out->Field("kernel", launch.kernel).Field("object", launch.object).Field("device", r.device).Field("isa", r.isa);
  out->List("workgroups", launch.workgroups).List("workgroup", launch.workgroup);
  out->Field("vgprs", r.vgprs).Field("sgprs", r.sgprs).Field("scratch", r.scratch);
  out->Field("static_lds", r.static_lds).Field("dynamic_lds", launch.lds).Field("kernarg", r.kernarg);
  out->Field("groups_per_cu", r.occupancy.groups_per_cu).Field("limited_by", r.occupancy.limit);
  out->Field("runs", launch.runs).Key("expectations").BeginArray();
  for (const Comparison& c : r.comparisons) {
    out->BeginObject().Field("buffer", c.expectation->buffer).Field("line", c.expectation->line);
    out->Field("elements", c.elements).Field("wrong", c.wrong).Field("ok", c.ok());
    out->Field("worst_absolute", c.worst_absolute).Field("worst_relative", c.worst_relative);
    out->Field("sum", absl::StrFormat("%016x", c.sum)).Field("first", c.first).EndObject();
  }
  out->EndArray().Field("ok", r.ok());
}

}  // namespace

StatusOr<int> TimeLaunchFile(const TimeSettings& s) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(s.launch, kMostLaunchBytes));
  ASSIGN_OR_RETURN(LaunchFile launch, ParseLaunchFile(text, s.launch));
  if (!s.results && s.clock) {
    launch.expectations.clear();
    launch.outputs.clear();
  }
  ASSIGN_OR_RETURN(const Opened device, OpenDevice(s));
  LaunchOptions options;
  options.gpu = static_cast<uint32_t>(s.gpu);
  options.timeout_ms = static_cast<int64_t>(s.timeout * 1000);
  const int64_t began = NowNs();
  ASSIGN_OR_RETURN(const LaunchResult result, RunLaunch(*device.sys, launch, options));
  const double host_seconds = static_cast<double>(NowNs() - began) * 1e-9;

  std::vector<sim::timing::LaunchReport> reports;
  Places places;
  if (device.timed.clock != nullptr) {
    reports = OwnReports(device, result);
    ASSIGN_OR_RETURN(const std::string object, ReadWholeFile(PathBeside(launch, launch.object), size_t{1} << 30));
    places.Add(result.code_va, result.code_bytes,
               absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
    if (!s.trace.empty()) {
      RETURN_IF_ERROR(WriteTrace(s.trace, reports, {}, device.timed.clock->TakeCopies()));
    }
  }
  const bool measured = s.device == "gpu";
  if (s.json) {
    JsonWriter out;
    out.BeginObject();
    WriteJson(launch, result, &out);
    if (measured) out.List("measured_us", result.microseconds);
    if (!reports.empty()) {
      out.Field("modelled_us", reports.back().us()).Field("model_error", ModelError(result.isa));
      out.Field("host_seconds", host_seconds).Key("launches").BeginArray();
      for (const auto& report : reports) {
        out.BeginObject();
        WriteLaunchTime(report, device.timed.params, places, &out);
        out.EndObject();
      }
      out.EndArray();
    }
    out.EndObject().Print();
    return result.ok() ? kExitOk : kExitFailure;
  }
  PrintText(launch, result);
  if (measured) {
    std::printf("\nmeasured: %s us\n", absl::StrJoin(result.microseconds, ", ").c_str());
  }
  if (!reports.empty()) {
    std::printf("\n");
    PrintLaunchTime(reports.back(), device.timed.params, places, static_cast<size_t>(s.waits));
    std::printf("\nmodelled, not measured: %s\n", ModelError(result.isa).c_str());
  }
  return result.ok() ? kExitOk : kExitFailure;
}

}  // namespace mainarch::cli
