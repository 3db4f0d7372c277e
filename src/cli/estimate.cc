// SPDX-License-Identifier: MIT
//
// mainarch estimate: the floor of one decoded token on real GPUs, from shapes and data sheets; and with --time beside it
// what the kernels of today take by the timing model.
#include <cmath>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/estimate_cost.h"
#include "cli/geometry.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/time_step.h"
#include "file/checkpoint.h"
#include "model/linear.h"

namespace mainarch::cli {
namespace {

struct Settings {
  std::string model, isa = "gfx950", format = "auto", kv = "auto";
  GeometryOptions geometry{"qwen3-0.6b"};
  int64_t tp = 8, context = 4096;
  bool split_kv = false, json = false, time = false;
};

// As the checkpoint's own tensors are; bf16 when the directory has none.
StatusOr<WeightFormats> FormatsIn(const std::string& directory, const model::ModelConfig& config) {
  auto checkpoint = file::Checkpoint::Open(directory);
  if (!checkpoint.ok()) return WeightFormats{};
  const std::string layer = "model.layers.0.";
  WeightFormats formats;
  ASSIGN_OR_RETURN(const quant::Matrix o,
                   model::FindLinear(**checkpoint, layer + "self_attn.o_proj", config.hidden,
                                     int64_t{config.heads} * config.ValueDim()));
  formats.attention = o.format;
  const bool sparse = config.experts > 0 && config.sparse_layer[0];
  ASSIGN_OR_RETURN(const quant::Matrix down,
                   model::FindLinear(
                       **checkpoint, layer + (sparse ? "mlp.experts.0.down_proj" : "mlp.down_proj"),
                       config.hidden, sparse ? config.moe_intermediate : config.intermediate));
  formats.ffn = down.format;
  return formats;
}

StatusOr<EstimateInput> InputOf(const Settings& s) {
  EstimateInput input;
  if (s.model.empty()) {
    ASSIGN_OR_RETURN(input.config, s.geometry.Resolve());
  } else {
    ASSIGN_OR_RETURN(input.config, ConfigLike(s.model));
  }
  if (s.format != "auto") {
    ASSIGN_OR_RETURN(input.formats, WeightFormatsOf(s.format));
  } else if (!s.model.empty()) {
    ASSIGN_OR_RETURN(input.formats, FormatsIn(s.model, input.config));
  }
  ASSIGN_OR_RETURN(input.chip, SheetOf(s.isa));
  input.tp = static_cast<int32_t>(s.tp);
  input.context = s.context;
  input.split_kv = s.split_kv;
  const bool wide = s.kv == "bf16" || (s.kv == "auto" && input.formats.ffn == quant::Format::kBF16);
  input.kv_element_bytes = wide ? 2 : 1;
  return input;
}

// Matrices of one layer, of these formats, by the name that mainarch time has for them.
StatusOr<model::SyntheticFormat> SyntheticOf(const WeightFormats& formats) {
  using quant::Format;
  constexpr struct {
    Format attention, ffn;
    const char* name;
  } kNames[] = {{Format::kBF16, Format::kBF16, "bf16"},
                {Format::kF16, Format::kF16, "f16"},
                {Format::kFp8Block, Format::kFp8Block, "fp8-block"},
                {Format::kMxfp4, Format::kMxfp4, "mxfp4"}};
  for (const auto& one : kNames) {
    if (one.attention == formats.attention && one.ffn == formats.ffn) {
      return model::SyntheticFormatFromName(one.name);
    }
  }
  return Error(Code::kUnsupported, "--time: weights of two formats; time one of them alone by --format");
}

// A step of one GPU's share under the clock: minutes, for a large model.
StatusOr<StepTime> Modelled(const EstimateInput& in) {
  StepTimeOptions o;
  o.config = in.config;
  ASSIGN_OR_RETURN(o.format, SyntheticOf(in.formats));
  o.kv = in.kv_element_bytes == 2 ? backend::KvType::kBF16 : backend::KvType::kFp8;
  o.isa = in.chip.isa;
  o.tp = in.tp;
  o.position = static_cast<uint32_t>(in.context);
  return TimeStep(o);
}

std::string Micros(double seconds) { return Fixed(seconds * 1e6, 1); }
std::string Mega(double bytes) { return Fixed(bytes * 1e-6, 1); }

void PrintReport(const EstimateInput& in, const Estimate& e) {
  std::printf("%s\n%s x %d (%s), context %lld, KV %s%s\n\n", Describe(in.config).c_str(),
              in.chip.name, in.tp, in.chip.isa, static_cast<long long>(in.context),
              in.kv_element_bytes == 2 ? "bf16" : "fp8", in.split_kv ? ", split over copies" : "");
  Table table({"<op", "a token", "weights MB", "KV MB", "GFLOP", "rounds", "us"});
  const auto row = [&](const std::string& name, const std::string& times, double weights, double kv,
                       double flops, int64_t rounds, double seconds) {
    table.Row({name, times, Mega(weights), Mega(kv), Fixed(flops * 1e-9, 2), absl::StrCat(rounds),
               Micros(seconds)});
  };
  for (const EstimateOp& op : e.ops) {
    row(op.name, absl::StrCat(op.times), op.weight_bytes, op.kv_bytes, op.flops, op.rounds,
        op.seconds);
  }
  row("token", "", e.weight_bytes, e.kv_bytes, e.flops, e.rounds, e.seconds);
  table.Print();
  std::printf(
      "\nestimate: %s MB a GPU at %s TB/s (peak %s): %s us; %lld fabric rounds come on top.\n"
      "KV %s bytes a token and GPU; %s GFLOP a token over all GPUs.\n"
      "From shapes and data sheets: nothing was run, no launch or synchronisation is counted.\n",
      Mega(e.bytes()).c_str(), Fixed(in.chip.planning_bytes_per_second * 1e-12, 1).c_str(),
      Fixed(in.chip.peak_bytes_per_second * 1e-12, 1).c_str(), Micros(e.seconds).c_str(),
      static_cast<long long>(e.rounds), Fixed(e.kv_bytes_per_token, 0).c_str(),
      Fixed(e.model_flops * 1e-9, 1).c_str());
}

void PrintModelled(const EstimateInput& in, const Estimate& e, const StepTime& t) {
  std::printf("\nmodelled: the kernels of today take %s us; the estimate is %s of that%s.\n"
              "Modelled, not measured: %s; `mainarch time` has it by kernel.\n",
              Fixed(t.us, 1).c_str(), Percent(e.seconds * 1e6 / t.us).c_str(),
              in.tp > 1 ? absl::StrCat(" (one of ", in.tp, " GPUs ran: what the others add to all-reduces is not in it)").c_str() : "",
              ModelError(in.chip.isa).c_str());
}

void PrintJson(const EstimateInput& in, const Estimate& e, const std::optional<StepTime>& time) {
  JsonWriter out;
  out.BeginObject().Field("kind", "estimate").Field("isa", in.chip.isa).Field("tp", in.tp);
  out.Field("context", in.context).Field("kv_element_bytes", in.kv_element_bytes);
  out.Field("planning_bytes_per_second", in.chip.planning_bytes_per_second);
  out.Key("ops").BeginArray();
  for (const EstimateOp& op : e.ops) {
    out.BeginObject().Field("name", op.name).Field("times", op.times);
    out.Field("weight_bytes", op.weight_bytes).Field("kv_bytes", op.kv_bytes);
    out.Field("flops", op.flops).Field("rounds", op.rounds).Field("seconds", op.seconds);
    out.EndObject();
  }
  out.EndArray();
  out.Field("weight_bytes", e.weight_bytes).Field("kv_bytes", e.kv_bytes);
  out.Field("kv_bytes_per_token", e.kv_bytes_per_token).Field("flops", e.flops);
  out.Field("model_flops", e.model_flops).Field("rounds", e.rounds).Field("seconds", e.seconds);
  if (time.has_value()) {
    out.Field("modelled_seconds", time->us * 1e-6).Field("model_error", ModelError(in.chip.isa));
  }
  out.EndObject().Print();
}

}  // namespace

int RunEstimate(Arguments arguments) {
  Settings s;
  Options options(
      "estimate", "[options]",
      "The floor of one decoded token on MI300X or MI355X: bytes, flops and fabric rounds "
      "of every op, from the model's shape and the chip's data sheet. An estimate: nothing "
      "is run and nothing was measured. With --time also what the kernels of today take, by the "
      "timing model of a virtual node.",
      "mainarch estimate --model DIR --isa gfx950 --tp 8 --context 131072\n"
      "mainarch estimate --preset qwen3-235b-a22b --format fp8-block --json");
  options.Text("model", "DIR", &s.model, "checkpoint directory, or one with a config.json alone");
  options.Choice("isa", {"gfx942", "gfx950"}, &s.isa, "the chip: MI300X, MI355X");
  options.Integer("tp", &s.tp, 1, 8, "GPUs");
  options.Integer("context", &s.context, 0, int64_t{1} << 24, "tokens that attention reads");
  options.Choice("format", {"auto", "bf16", "fp8-block", "mxfp4", "mxfp4-ffn"}, &s.format,
                 "of the weights; auto: as in the checkpoint, else bf16");
  options.Choice("kv", {"auto", "bf16", "fp8"}, &s.kv,
                 "of the cache; auto: bf16 beside bf16 weights");
  options.Flag("split-kv", &s.split_kv, "copies of a KV head share its tokens");
  options.Flag("time", &s.time, "also what today's kernels take by the timing model: up to minutes");
  options.Flag("json", &s.json, "one JSON object");
  options.Section("Without --model");
  s.geometry.Declare(&options);
  if (const auto code = options.Parse(arguments)) return *code;
  const StatusOr<EstimateInput> input = InputOf(s);
  if (!input.ok()) return Fail("estimate", input.status());
  const StatusOr<Estimate> estimate = EstimateToken(*input);
  if (!estimate.ok()) return Fail("estimate", estimate.status());
  std::optional<StepTime> time;
  if (s.time) {
    StatusOr<StepTime> made = Modelled(*input);
    if (!made.ok()) return Fail("estimate", made.status());
    time = *std::move(made);
  }
  if (s.json) {
    PrintJson(*input, *estimate, time);
    return kExitOk;
  }
  PrintReport(*input, *estimate);
  if (time.has_value()) PrintModelled(*input, *estimate, *time);
  return kExitOk;
}

}  // namespace mainarch::cli
