// SPDX-License-Identifier: MIT
#include "cli/timed_node.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/output.h"
#include "sim/isa/executor.h"
#include "sim/node.h"
#include "sim/profile.h"

namespace mainarch::cli {
namespace {

using sim::timing::LaunchReport;
using sim::timing::Limit;
using sim::timing::Params;

StatusOr<sim::timing::ClockOptions> OptionsOf(const TimedOptions& wanted) {
  sim::timing::ClockOptions options;
  options.spans = wanted.spans;
  for (const std::string& text : wanted.params) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    double value = 0;
    if (!absl::SimpleAtod(parts.second, &value) || !std::isfinite(value)) {
      return Error(Code::kInvalidArgument, "--param \"", text, "\": expected NAME=NUMBER");
    }
    options.params.emplace_back(std::string(parts.first), value);
  }
  return options;
}

sim::isa::Isa IsaOf(const sim::NodeConfig& config) {
  return config.profile->isa == "gfx942" ? sim::isa::Isa::kGfx942 : sim::isa::Isa::kGfx950;
}

std::vector<size_t> ByShare(const LaunchReport& report) {
  std::vector<size_t> order;
  for (size_t i = 0; i < sim::timing::kLimits; ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return report.limited_by[a] > report.limited_by[b]; });
  return order;
}

double BytesToUs(double bytes, double tbs) { return tbs > 0 ? bytes / tbs * 1e-6 : 0; }

}  // namespace

StatusOr<TimedNode> OpenTimed(const std::string& text, const TimedOptions& wanted) {
  ASSIGN_OR_RETURN(sim::NodeConfig config, sim::ParseNode(text));
  if (config.profile->isa != "gfx942" && config.profile->isa != "gfx950") {
    return Error(Code::kUnsupported, "there is no timing model of ", config.profile->isa);
  }
  ASSIGN_OR_RETURN(const sim::timing::ClockOptions options, OptionsOf(wanted));
  RETURN_IF_ERROR(sim::timing::Clock::Check(options, IsaOf(config)));
  config.time = true;
  config.Settle();
  TimedNode out;
  out.params = Params::Of(IsaOf(config));
  for (const auto& [name, value] : options.params) RETURN_IF_ERROR(out.params.Set(name, value));
  out.clock = std::make_shared<sim::timing::Clock>(options);
  sim::isa::ExecutorOptions executor;
  executor.check = config.check;
  executor.exact_matrix = config.exact_matrix;
  if (config.lanes.has_value()) executor.lanes = *config.lanes;
  executor.matrix = wanted.matrix;
  executor.lines = config.lines;
  executor.pace = out.clock;
  ASSIGN_OR_RETURN(auto node, sim::Node::Create(config, std::make_unique<sim::isa::IsaExecutor>(executor)));
  out.sys = std::make_shared<sim::SimSys>(std::move(node));
  return out;
}

std::string ModelError(absl::string_view isa) {
  // bench/clock/README.md has the runs behind these: matrix products of 4 to 120 us, and nothing else.
  struct Held {
    const char* isa;
    const char* what;
    int rows;
    int median, p90;  // per cent
  };
  static constexpr Held kHeld[] = {
      {"gfx942", "MI308X and one of MI300X", 74, 11, 21},
      {"gfx950", "MI355X", 148, 11, 26},
  };
  for (const Held& held : kHeld) {
    if (isa != held.isa) continue;
    return absl::StrCat("against ", held.rows, " matrix products that AMD measured on ", held.what,
                        " its error was ", held.median, " % in the median, ", held.p90, " % at the 90th percentile");
  }
  return "its error is not known";
}

void Places::Add(uint64_t va, uint64_t size, absl::Span<const uint8_t> elf) {
  loaded_.push_back({va, size, std::make_unique<sim::isa::LineTable>(elf)});
}

std::string Places::Find(uint64_t entry, uint64_t pc) const {
  const std::string byte = absl::StrFormat("+0x%x", pc - entry);
  for (const Loaded& each : loaded_) {
    if (pc < each.va || pc - each.va >= each.size) continue;
    const std::string line = each.lines->Find(pc - each.va);
    if (!line.empty()) return absl::StrCat(line, " ", byte);
  }
  return byte;
}

double MemoryFloorUs(const LaunchReport& report, const Params& params) {
  return BytesToUs(static_cast<double>(report.bytes.hbm_read), params.hbm_tbs * params.hbm_read_share) +
         BytesToUs(static_cast<double>(report.bytes.hbm_write), params.hbm_tbs * params.hbm_write_share);
}

std::string LimitsText(const LaunchReport& report) {
  std::vector<std::string> parts;
  for (const size_t i : ByShare(report)) {
    if (report.limited_by[i] < 0.05 && !parts.empty()) break;
    parts.push_back(absl::StrCat(sim::timing::NameOf(static_cast<Limit>(i)), " ", Percent(report.limited_by[i])));
  }
  return absl::StrJoin(parts, ", ");
}

void PrintLaunchTime(const LaunchReport& r, const Params& params, const Places& places, size_t most_waits) {
  Facts facts;
  facts.Add("modelled", absl::StrCat(Fixed(r.us(), 2), " us, ", r.cycles(), " cycles of ", Fixed(r.clock_mhz, 0),
                                     " MHz; ", Fixed(r.kernel_us(), 2), " us from the first wave to the last"));
  const double floor = MemoryFloorUs(r, params);
  facts.Add("floor", absl::StrCat(Fixed(floor, 2), " us for its bytes from memory: ",
                                  Percent(r.us() > 0 ? floor / r.us() : 0), " of that"));
  facts.Add("limited by", LimitsText(r));
  facts.Add("occupancy", absl::StrCat(r.cus_used, " of ", r.cus, " compute units, ", r.groups_per_cu,
                                      " workgroups fit one (", sim::timing::NameOf(r.resident), "), ",
                                      Fixed(r.mean_waves_per_simd, 2), " waves a SIMD in the mean"));
  facts.Add("in flight", absl::StrCat(Bytes(static_cast<uint64_t>(r.mean_in_flight)), " in the mean"));
  facts.Add("bytes", absl::StrCat("asked ", Bytes(r.bytes.asked), ", L1 had ", Bytes(r.bytes.l1_hit), "; L2 read ",
                                  Bytes(r.bytes.l2_read), ", had ", Bytes(r.bytes.l2_hit), ", written ",
                                  Bytes(r.bytes.l2_write), "; MALL had ", Bytes(r.bytes.mall_hit), "; memory read ",
                                  Bytes(r.bytes.hbm_read), ", written ", Bytes(r.bytes.hbm_write)));
  facts.Print();
  if (r.waits.empty() || most_waits == 0) return;
  std::printf("\n");
  Table table({"<waited at", "times", "us of waves", "a time, ns", "<mostly for"});
  for (size_t i = 0; i < std::min(most_waits, r.waits.size()); ++i) {
    const sim::timing::WaitAt& w = r.waits[i];
    const double each = w.times > 0 ? w.wave_us * 1000 / static_cast<double>(w.times) : 0;
    table.Row({places.Find(r.entry, w.pc), Count(w.times), Fixed(w.wave_us, 1), Fixed(each, 0),
               std::string(sim::timing::NameOf(w.most))});
  }
  table.Print();
}

void WriteLaunchTime(const LaunchReport& r, const Params& params, const Places& places, JsonWriter* out) {
  const sim::timing::MemoryBytes& b = r.bytes;
  out->Field("kernel", r.kernel).Field("gpu", r.gpu);
  out->Field("modelled_us", r.us()).Field("kernel_us", r.kernel_us()).Field("cycles", r.cycles());
  out->Field("clock_mhz", r.clock_mhz).Field("start_us", r.start_us).Field("first_wave_us", r.first_wave_us);
  out->Field("last_wave_us", r.last_wave_us).Field("end_us", r.end_us);
  out->Field("floor_us", MemoryFloorUs(r, params)).Field("instructions", r.instructions);
  out->Field("workgroups", r.workgroups).Field("waves", r.waves).Field("groups_per_cu", r.groups_per_cu);
  out->Field("resident", sim::timing::NameOf(r.resident)).Field("cus_used", r.cus_used);
  out->Field("mean_waves_per_simd", r.mean_waves_per_simd).Field("mean_in_flight", r.mean_in_flight);
  out->Field("in_flight_step_us", r.in_flight_step_us).List("in_flight", r.in_flight);
  out->Key("limited_by").BeginObject();
  for (size_t i = 0; i < sim::timing::kLimits; ++i) {
    out->Field(sim::timing::NameOf(static_cast<Limit>(i)), r.limited_by[i]);
  }
  out->EndObject().Key("bytes").BeginObject().Field("asked", b.asked).Field("l1_hit", b.l1_hit);
  out->Field("l2_read", b.l2_read).Field("l2_hit", b.l2_hit).Field("l2_write", b.l2_write);
  out->Field("mall_hit", b.mall_hit).Field("hbm_read", b.hbm_read).Field("hbm_write", b.hbm_write);
  out->Field("peer", b.peer).Field("host", b.host).Field("lds", b.lds).Field("scalar", b.scalar).EndObject();
  out->Key("waits").BeginArray();
  for (const sim::timing::WaitAt& w : r.waits) {
    out->BeginObject().Field("at", places.Find(r.entry, w.pc)).Field("times", w.times).Field("wave_us", w.wave_us);
    out->Field("most", sim::timing::NameOf(w.most)).EndObject();
  }
  out->EndArray();
}

}  // namespace mainarch::cli
