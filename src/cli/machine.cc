// SPDX-License-Identifier: MIT
//
// mainarch topology, doctor, sim, kernels: the machine, real or virtual, and what runs on it.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>

#include "base/fd.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/interrupt.h"
#include "cli/json_mode.h"
#include "cli/json_writer.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/probe.h"
#include "cli/topology.h"
#include "isa/kernel_images.h"
#include "kfd/linux_sys.h"
#include "kfd/private_file.h"
#include "kfd/sim_part.h"
#include "sim/launcher.h"

namespace mainarch::cli {
namespace {

constexpr absl::string_view kSimPrefix = "sim:";

// "gpu" is this machine; "sim:gfx950x8" a virtual node.
StatusOr<std::shared_ptr<kfd::Sys>> SysOf(absl::string_view device) {
  if (device == "gpu") return std::make_shared<kfd::LinuxSys>();
  if (device.substr(0, kSimPrefix.size()) != kSimPrefix) {
    return Error(Code::kInvalidArgument, "device \"", device,
                 "\": expected \"gpu\" or \"sim:\" and a node such as gfx950x8");
  }
  return kfd::OpenVirtual(device.substr(kSimPrefix.size()));
}

struct MachineSettings {
  std::string device = "gpu";
  bool json = false;
};

std::optional<int> ParseMachine(Options* options, Arguments arguments, MachineSettings* settings) {
  options->Text("device", "DEVICE", &settings->device, "gpu, or sim:NODE for a virtual node");
  options->Flag("json", &settings->json, "one JSON object on stdout");
  return options->Parse(arguments);
}

}  // namespace

int RunTopologyCommand(Arguments arguments) {
  MachineSettings settings;
  Options options(
      "topology", "[--device sim:gfx950x8]",
      "What the GPUs say of themselves: compute units, memory, caches, DMA engines and the "
      "links between them. Reads sysfs only.",
      "mainarch topology\nmainarch topology --device sim:gfx950x8 --json");
  if (auto code = ParseMachine(&options, arguments, &settings)) return *code;
  auto sys = SysOf(settings.device);
  if (!sys.ok()) return Fail("topology", sys.status());
  std::string text;
  const Status status = RunTopology(**sys, {settings.json}, &text);
  if (!status.ok()) return Fail("topology", status);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int RunDoctorCommand(Arguments arguments) {
  MachineSettings settings;
  Options options("doctor", "", "Why a GPU cannot be used, and what mends it.",
                  "mainarch doctor\nmainarch doctor --json");
  if (auto code = ParseMachine(&options, arguments, &settings)) return *code;
  auto sys = SysOf(settings.device);
  if (!sys.ok()) return Fail("doctor", sys.status());
  std::string text;
  const int code = RunDoctor(**sys, settings.json, &text);
  std::fputs(text.c_str(), stdout);
  return code;
}

int RunSimCommand(Arguments arguments) {
  constexpr const char* kHelp =
        "usage: mainarch sim [--node gfx950x8] [--faults SCRIPT] [--log FILE] [--lines FILE] "
        "[--library FILE] -- PROGRAM ...\n\n"
        "Runs any program that drives AMD GPUs through the kernel driver on a virtual node.\n\n"
        "NODE is chip x GPUs and settings: gfx950x8,seed=7,minor=14 (a wrong one is told what is "
        "known). SCRIPT makes trouble on demand: hang=0@3, fault=0@1, ioctl=CREATE_QUEUE@2:ENOMEM "
        "and others, separated by ';'.\n"
        "A runtime older than the chip sees no GPU of it; tell it to take one for what it "
        "knows.\n\n"
        "Examples:\n  mainarch sim --node gfx90ax2 -- rocminfo\n"
        "  HSA_OVERRIDE_GFX_VERSION=9.0.10 mainarch sim -- rocminfo\n";
  if (arguments.empty()) {
    std::fputs(kHelp, stderr);
    return kExitUsage;
  }
  const auto own_end = std::find(arguments.begin(), arguments.end(), "--");
  if (std::find(arguments.begin(), own_end, "--help") != own_end) {
    JsonWanted() ? PrintJsonHelp(kHelp) : static_cast<void>(std::fputs(kHelp, stdout));
    return kExitOk;
  }
  // A missing file is named by RunProgram, when none is named here either.
  constexpr char kPreload[] = "libmainarch-sim-preload.so";
  const auto library = kfd::FindPrivateFile(kPreload);
  auto launch = sim::ParseLaunch(arguments, library.ok() ? *library : kPreload);
  if (!launch.ok()) {
    const std::string message(launch.status().message());
    std::fprintf(stderr, "mainarch sim: %s\nsee mainarch sim --help\n", message.c_str());
    PrintJsonError({kExitUsage, 0, message, "see mainarch sim --help"});
    return kExitUsage;
  }
  // It ends with its program, which gets what would have ended it: from a terminal both get the signal, but
  // who runs programs knows this process alone.
  NeverEndForcibly();
  std::atomic<pid_t> program{0};
  const auto end_program = [&program] {
    const pid_t pid = program;
    if (pid > 0) kill(pid, SIGTERM);
  };
  const InterruptHook end(InterruptHook::When::kAtOnce, end_program);
  launch->running = [&](int pid) {
    program = pid;
    if (Interrupted()) end_program();  // the signal came before there was one
  };
  auto code = sim::RunProgram(*launch);
  return code.ok() ? *code : Fail("sim", code.status());
}

int RunProbeCommand(Arguments arguments) {
  constexpr size_t kMaxReport = 16 << 20;
  MachineSettings settings;
  int64_t index = 0;
  bool fingerprints = false, report = false;
  std::string compare;
  Options options(
      "probe", "[--device sim:gfx950] [--compare FILE]",
      "Runs kernels whose answers documents leave open: last bits of exp and log, rounding of fp8 "
      "and fp4, sums inside matrix instructions, memory order. On a virtual node the answers are "
      "this library's assumptions. Behind them what the decoder rests on and no document says: "
      "hand-over between XCDs, scopes of packets, words without fences, arguments in VRAM; exit 1 "
      "if any of it does not hold. If you have an MI300X or MI355X: run it with --json and send "
      "the file.",
      "mainarch probe --json > mine.json\n"
      "mainarch probe --device sim:gfx950 --compare mine.json\n"
      "mainarch probe --report");
  options.Integer("index", &index, 0, 63, "which GPU");
  options.Text("compare", "FILE", &compare, "say what differs from that file; exit 1 if anything");
  options.Flag("fingerprints", &fingerprints, "with --json: leave the outputs themselves out");
  options.Flag("report", &report,
               "where every instruction of the virtual node comes from, and what it assumes");
  if (auto code = ParseMachine(&options, arguments, &settings)) return *code;
  if (report) {
    std::fputs(FidelityReport(settings.json).c_str(), stdout);
    return kExitOk;
  }
  auto sys = SysOf(settings.device);
  if (!sys.ok()) return Fail("probe", sys.status());
  auto ours = RunProbe(**sys, static_cast<uint32_t>(index), settings.device);
  if (!ours.ok()) return Fail("probe", ours.status());
  if (compare.empty()) {
    std::fputs((settings.json ? ProbeJson(*ours, !fingerprints) : ProbeText(*ours)).c_str(),
               stdout);
    return ours->Broken() == 0 ? kExitOk : kExitFailure;
  }
  auto text = ReadWholeFile(compare, kMaxReport);
  if (!text.ok()) return Fail("probe", text.status());
  auto theirs = ParseProbeJson(*text, compare);
  if (!theirs.ok()) return Fail("probe", theirs.status());
  int differences = 0;
  const std::string lines = CompareProbes(*ours, *theirs, &differences);
  if (settings.json) {
    JsonWriter out;
    out.BeginObject().Field("differences", differences).Field("text", lines).EndObject().Print();
  } else {
    std::fputs(lines.c_str(), stdout);
    std::printf("%d of %zu answers differ\n", differences, ours->answers.size());
  }
  return differences == 0 ? kExitOk : kExitFailure;
}

int RunKernels(Arguments arguments) {
  std::string isa;
  bool json = false;
  Options options(
      "kernels", "[--isa gfx950]",
      "The GPU kernels in this build, with the registers and LDS each takes and how many fit.",
      "mainarch kernels\nmainarch kernels --isa gfx950 --json");
  options.Text("isa", "ISA", &isa, "only this one");
  options.Flag("json", &json, "one JSON object on stdout");
  if (auto code = options.Parse(arguments)) return *code;
  auto rows = isa::ListKernels(isa);
  if (!rows.ok()) return Fail("kernels", rows.status());
  if (json) {
    JsonWriter out;
    out.BeginObject().Key("kernels").BeginArray();
    for (const isa::KernelRow& row : *rows) {
      out.BeginObject()
          .Field("isa", row.isa)
          .Field("image", row.image)
          .Field("name", row.kernel.name)
          .Field("vgprs", row.kernel.vgprs)
          .Field("agprs", row.kernel.agprs)
          .Field("sgprs", row.kernel.sgprs)
          .Field("lds_bytes", row.kernel.lds_bytes)
          .Field("code_bytes", row.kernel.code_bytes)
          .Field("waves_per_simd", row.occupancy.waves_per_simd)
          .Field("limit", row.occupancy.limit)
          .EndObject();
    }
    out.EndArray().EndObject().Print();
    return kExitOk;
  }
  Table table(
      {"<isa", "<image", "<kernel", "vgpr", "agpr", "sgpr", "lds", "code", "waves/simd", "<limit"});
  for (const isa::KernelRow& row : *rows) {
    auto cell = [](const auto& value) { return absl::StrCat(value); };
    table.Row({cell(row.isa), cell(row.image), cell(row.kernel.name), cell(row.kernel.vgprs),
               cell(row.kernel.agprs), cell(row.kernel.sgprs), cell(row.kernel.lds_bytes),
               cell(row.kernel.code_bytes), cell(row.occupancy.waves_per_simd),
               cell(row.occupancy.limit)});
  }
  table.Print();
  return kExitOk;
}

}  // namespace mainarch::cli
