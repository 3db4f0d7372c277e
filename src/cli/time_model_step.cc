// SPDX-License-Identifier: MIT
//
// mainarch time --preset: the table of a step.
#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/time_command.h"
#include "cli/time_step.h"

namespace mainarch::cli {
namespace {

std::string Limits(const OpTime& op) {
  sim::timing::LaunchReport report;  // what LimitsText looks at
  for (size_t i = 0; i < sim::timing::kLimits; ++i) report.limited_by[i] = op.us > 0 ? op.limited_by[i] / op.us : 0;
  return LimitsText(report);
}

std::string Share(double floor, double us) { return floor > 0 && us > 0 ? Percent(floor / us) : "-"; }

StatusOr<StepTimeOptions> OptionsOf(const TimeSettings& s) {
  StepTimeOptions o;
  ASSIGN_OR_RETURN(o.config, s.geometry.Resolve());
  ASSIGN_OR_RETURN(o.format, model::SyntheticFormatFromName(s.format));
  absl::string_view node = s.device;
  if (!absl::ConsumePrefix(&node, "sim:") || (node != "gfx942" && node != "gfx950")) {
    return Error(Code::kInvalidArgument, "--device \"", s.device,
                 "\": a step is timed on sim:gfx942 or sim:gfx950");
  }
  o.isa = std::string(node);
  ModelOptions kv;
  kv.kv = s.kv;
  o.kv = kv.kv_type();
  o.activations = s.rounding.activations();
  o.tp = static_cast<int32_t>(s.tp);
  o.ranks = static_cast<int32_t>(s.ranks);
  o.layers = static_cast<int32_t>(s.run_layers);
  o.position = static_cast<uint32_t>(s.context);
  o.rows = static_cast<uint32_t>(s.rows);
  o.prompt = s.prompt;
  o.outcome = s.choose == "top-k" ? Outcome::kDrawn : s.choose == "top-p" ? Outcome::kRaced : Outcome::kLargest;
  o.params = s.params;
  o.spans = !s.trace.empty();
  o.resident = s.resident;
  return o;
}

// What the first workgroup does of an op, and what it waits for the others and for their being told.
void PrintResidentOps(const StepTime& t) {
  Table table({"<op", "launches", "a step", "us each", "of it waited", "us a step", "of it waited", "floor us", "of floor"});
  for (const OpTime& op : t.ops) {
    table.Row({op.name, absl::StrCat(op.packets), Fixed(op.times, 0), Fixed(op.us, 2), Fixed(op.wait_us, 2),
               Fixed(op.us * op.times, 1), Fixed(op.wait_us * op.times, 1), Fixed(op.floor_us * op.times, 1),
               Share(op.floor_us, op.us)});
  }
  table.Row({"step", "", "", "", "", Fixed(t.us, 1), Fixed(t.wait_us, 1), Fixed(t.floor_us, 1), Share(t.floor_us, t.us)});
  table.Print();
}

void PrintPacketOps(const StepTime& t) {
  Table table({"<op", "packets", "a step", "us each", "us a step", "floor us", "of floor", "waves/SIMD", "in flight",
               "<limited by"});
  for (const OpTime& op : t.ops) {
    table.Row({op.name, absl::StrCat(op.packets), Fixed(op.times, 0), Fixed(op.us, 2), Fixed(op.us * op.times, 1),
               Fixed(op.floor_us * op.times, 1), Share(op.floor_us, op.us), Fixed(op.waves_per_simd, 2),
               Bytes(static_cast<uint64_t>(op.in_flight)), Limits(op)});
  }
  table.Row({"step", "", "", "", Fixed(t.us, 1), Fixed(t.floor_us, 1), Share(t.floor_us, t.us), "", "", ""});
  table.Print();
}

void PrintStep(const TimeSettings& s, const StepTimeOptions& o, const StepTime& t) {
  std::printf("%s\n%s, one of %d GPUs%s, %s weights%s, %u row%s%s, context %u, KV %s; %d of %d layers run\n\n",
              Describe(o.config).c_str(), o.isa.c_str(), o.tp,
              o.ranks > 1 ? absl::StrCat(" (", o.ranks, " run)").c_str() : "", s.format.c_str(), s.rounding.rounding_text(), o.rows,
              o.rows > 1 ? "s" : "", o.prompt ? " of a prompt" : "", o.position,
              s.kv.c_str(), std::min(o.layers, o.config.layers), o.config.layers);
  o.resident ? PrintResidentOps(t) : PrintPacketOps(t);
  if (o.resident) {
    std::printf("\nasked for a pause at the worst moment, the kernel leaves within %.1f us; %.1f us between two steps\n",
                t.pause_us, t.pause_between_us);
  }
  if (s.packets) {
    std::printf("\n");
    Table packets({"<op", "<kernel", "start us", "us", "workgroups", "<limited by"});
    for (size_t i = 0; i < t.launches.size(); ++i) {
      const sim::timing::LaunchReport& r = t.launches[i];
      if (r.gpu != 0) continue;
      packets.Row({t.names[i], r.kernel, Fixed(r.start_us - t.launches[0].start_us, 2), Fixed(r.us(), 2),
                   absl::StrCat(r.workgroups), LimitsText(r)});
    }
    packets.Print();
  }
  std::printf("\n%s wave-instructions in %s of this machine's time\n", Count(t.instructions).c_str(),
              Seconds(t.host_seconds).c_str());
  if (o.ranks < o.tp) {
    std::printf("%d of %d GPUs ran: what the others would add to all-reduces is not in it\n", o.ranks, o.tp);
  }
  std::printf("modelled, not measured: %s; of whole decoders nothing was ever held against it\n",
              ModelError(o.isa).c_str());
}

void PrintStepJson(const TimeSettings& s, const StepTimeOptions& o, const StepTime& t) {
  JsonWriter out;
  out.BeginObject().Field("kind", "modelled").Field("model_error", ModelError(o.isa)).Field("isa", o.isa);
  out.Field("tp", o.tp).Field("ranks", o.ranks).Field("format", s.format).Field("kv", s.kv);
  out.Field("fast", s.rounding.fast).Field("mxfp8", s.rounding.mxfp8);
  out.Field("rows", o.rows).Field("prompt", o.prompt).Field("context", o.position).Field("layers", o.config.layers).Field("layers_run", o.layers);
  out.Field("modelled_us", t.us).Field("floor_us", t.floor_us).Field("run_us", t.run_us);
  if (o.resident) out.Field("pause_us", t.pause_us).Field("pause_between_us", t.pause_between_us);
  out.Field("instructions", t.instructions).Field("host_seconds", t.host_seconds);
  out.Key("ops").BeginArray();
  for (const OpTime& op : t.ops) {
    out.BeginObject().Field("name", op.name).Field("packets", op.packets).Field("times", op.times);
    out.Field("modelled_us", op.us).Field("floor_us", op.floor_us).Field("waves_per_simd", op.waves_per_simd);
    if (o.resident) out.Field("wait_us", op.wait_us);
    out.Field("in_flight", op.in_flight).Key("limited_by_us").BeginObject();
    for (size_t i = 0; i < sim::timing::kLimits; ++i) {
      out.Field(sim::timing::NameOf(static_cast<sim::timing::Limit>(i)), op.limited_by[i]);
    }
    out.EndObject().EndObject();
  }
  out.EndArray();
  if (s.packets) {
    out.Key("launches").BeginArray();
    for (size_t i = 0; i < t.launches.size(); ++i) {
      out.BeginObject().Field("op", t.names[i]);
      WriteLaunchTime(t.launches[i], t.params, t.places, &out);
      out.EndObject();
    }
    out.EndArray();
  }
  out.EndObject().Print();
}

// The instructions of the longest packets at which waves waited longest.
void PrintWaits(const TimeSettings& s, const StepTime& t) {
  struct Row {
    const std::string* op;
    const sim::timing::LaunchReport* report;
    const sim::timing::WaitAt* wait;
  };
  std::vector<Row> rows;
  for (size_t i = 0; i < t.launches.size(); ++i) {
    if (t.launches[i].gpu != 0) continue;
    for (const auto& wait : t.launches[i].waits) rows.push_back({&t.names[i], &t.launches[i], &wait});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.wait->wave_us > b.wait->wave_us; });
  rows.resize(std::min(rows.size(), static_cast<size_t>(s.waits)));
  if (rows.empty()) return;
  std::printf("\n");
  Table table({"<op", "<waited at", "times", "us of waves", "<mostly for"});
  for (const Row& row : rows) {
    table.Row({*row.op, t.places.Find(row.report->entry, row.wait->pc), Count(row.wait->times),
               Fixed(row.wait->wave_us, 1), std::string(sim::timing::NameOf(row.wait->most))});
  }
  table.Print();
}

}  // namespace

StatusOr<int> TimeModelStep(const TimeSettings& s) {
  ASSIGN_OR_RETURN(const StepTimeOptions options, OptionsOf(s));
  ASSIGN_OR_RETURN(const StepTime time, TimeStep(options));
  if (!s.trace.empty()) {
    const ResidentTrace resident = {time.resident, time.resident_names};
    RETURN_IF_ERROR(WriteTrace(s.trace, time.launches, time.names, time.copies, resident));
  }
  if (s.json) {
    PrintStepJson(s, options, time);
    return kExitOk;
  }
  PrintStep(s, options, time);
  PrintWaits(s, time);
  return kExitOk;
}

}  // namespace mainarch::cli
