// SPDX-License-Identifier: MIT
//
// mainarch time: how long a launch of any kernel, or a step of any model, would take, by the virtual
// node's timing model.
#include "cli/time_command.h"

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "kernels/quant/kv_type.h"

namespace mainarch::cli {
namespace {

// Beyond what an engine gives a step of itself; an interpreted step takes minutes from a few thousand rows on.
constexpr int64_t kMostRows = 65536;

}  // namespace

int RunTime(Arguments arguments) {
  TimeSettings s;
  Options options(
      "time", "--launch FILE | --preset NAME | --like PATH [options]",
      "How long a kernel's launch, or a decode step of a model, takes by the timing model of a virtual "
      "node: modelled microseconds, the share of the floor, what limited it, where waves waited. Of a "
      "launch file, which describes a launch of any code object, results are compared with what the "
      "file expects; see mainarch-launch(5). A step runs two layers that stand for all, with hashed "
      "weights.",
      "mainarch time --launch scale.launch\n"
      "mainarch time --launch scale.launch --device gpu --json\n"
      "mainarch time --preset qwen3-235b-a22b --tp 8 --format mxfp4 --context 4096 --trace step.json");
  options.Text("device", "DEVICE", &s.device,
               "sim:NODE, a virtual node such as sim:gfx942; with --launch also gpu, measured instead");
  options.Texts("param", "NAME=NUMBER", &s.params, "a figure of the timing model, in place of the chip's own");
  options.Text("trace", "FILE", &s.trace, "a timeline for Perfetto or chrome://tracing");
  options.Integer("waits", &s.waits, 0, 1000, "so many instructions at which waves waited longest");
  options.Flag("json", &s.json, "one JSON object on stdout");
  options.Section("A launch");
  options.Text("launch", "FILE", &s.launch, "the launch file");
  options.Integer("index", &s.gpu, 0, 15, "which GPU of the device");
  options.Number("timeout", &s.timeout, 0.001, 1e6, "seconds after which a run is given up");
  options.Flag("clock", &s.clock, "with the timing model; results are the same without it, and come sooner");
  options.Flag("results", &s.results,
               "with the clock: without results matrix products are not computed, and nothing is compared; times are the "
               "same where values steer nothing");
  options.Section("A step");
  s.geometry.Declare(&options);
  options.Choice("format", FormatNames(), &s.format, "of the weights");
  options.Choice("kv", {std::begin(quant::kKvTypeNames), std::end(quant::kKvTypeNames)}, &s.kv, "of the cache");
  options.Integer("tp", &s.tp, 1, 8, "GPUs that share the model");
  options.Integer("ranks", &s.ranks, 1, 8, "of these so many run; 1 has no all-reduce");
  options.Flag("resident", &s.resident, "by the kernel that stays on the GPU, not as packets");
  options.Integer("run-layers", &s.run_layers, 1, 1024, "layers that run and stand for all");
  options.Integer("rows", &s.rows, 1, kMostRows, "rows of the sequence, each with its logits: a token and its drafts");
  options.Flag("prompt", &s.prompt, "of these rows the last one alone has logits, as of a prompt");
  options.Integer("context", &s.context, 0, 1 << 20, "tokens before the one that is decoded");
  options.Choice("choose", {"largest", "top-k", "top-p"}, &s.choose,
                 "each row's token: the largest logit's, or a draw by top-k 20 with top-p 0.95, or by top-p alone");
  options.Flag("fast", &s.rounding.fast, "products take rows rounded to bf16");
  options.Flag("mxfp8", &s.rounding.mxfp8, "those with MXFP4 weights, and most with FP8 blocks, take them as MXFP8 on gfx950; others as --fast");
  options.Flag("packets", &s.packets, "every packet of the first rank, too");
  if (const auto code = options.Parse(arguments)) return *code;
  const bool step = options.given("preset") || options.given("like");
  if (step != s.launch.empty()) return options.Usage("give --launch FILE, or --preset or --like");
  const StatusOr<int> code = step ? TimeModelStep(s) : TimeLaunchFile(s);
  return code.ok() ? *code : Fail("time", code.status());
}

}  // namespace mainarch::cli
