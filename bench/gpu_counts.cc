// SPDX-License-Identifier: MIT
//
// gpu_counts: the table of what one decoded token of Qwen3-235B-A22B costs on the GPU path, op by
// op, for every weight format and both chips; --json for programs. The token is chosen on the GPUs,
// the largest logit's; two rows more say what the whole sampler costs, and two what it costs to
// read the logits instead. Widths are real, weights hashed, layers few. By default one GPU runs the
// share that one of eight holds (heads, expert and vocabulary columns divided by eight), which is
// what each of eight runs but for the all-reduce;
// --ranks 2, 4 or 8 runs so many shares side by side, with it.
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/geometry.h"
#include "cli/gpu_step_counts.h"
#include "cli/json_writer.h"
#include "cli/options.h"
#include "cli/output.h"

namespace mainarch {
namespace {

using cli::CountSteps;
using cli::Fixed;
using cli::OpCounts;
using cli::Outcome;
using cli::ShareOf;
using cli::StepCountOptions;
using cli::TokenCounts;

struct Settings {
  std::string isa = "all", format = "all", preset = "qwen3-235b-a22b";
  int64_t ranks = 1, layers = 1, position = 1024;
  bool json = false;
};

std::string Kilo(uint64_t bytes) { return Fixed(static_cast<double>(bytes) / 1000, 1); }

// What a step's outcome is called.
const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRead:
      return "logits read";
    case Outcome::kLargest:
      return "largest chosen";
    case Outcome::kDrawn:
      return "drawn";
    case Outcome::kRaced:
      return "drawn from all";
  }
  return "";
}

void PrintSums(const Settings& s, const TokenCounts& counts) {
  const bool chooses = counts.outcome != Outcome::kRead && s.ranks > 1;
  std::printf(
      "%s: host waits %u, doorbells %u; all-reduces %u (%s a layer) in %u fabric rounds, %llu "
      "bytes "
      "to peers a rank%s\n",
      NameOf(counts.outcome), counts.step.host_waits, counts.step.submissions,
      counts.step.all_reduces,
      Fixed(static_cast<double>(counts.step.all_reduces) / counts.layers, 0).c_str(),
      counts.step.rounds, static_cast<unsigned long long>(counts.step.link_bytes),
      chooses ? "; one round more to choose" : "");
}

// `steps`: the first with all its ops, of the others what differs.
void PrintTable(const std::string& title, const Settings& s,
                const std::vector<TokenCounts>& steps) {
  std::printf("%s, %lld of 8 shares, %d layer(s), token at position %lld\n", title.c_str(),
              static_cast<long long>(s.ranks), steps[0].layers, static_cast<long long>(s.position));
  cli::Table table({"<op", "ops", "packets", "memory kB", "least kB", "ratio", "step's own kB",
                    "written kB", "memory whole", "all whole", "spilled", "to peers kB",
                    "instructions"});
  const auto row = [&](const OpCounts& op, Outcome outcome, bool named) {
    const std::string name = named ? absl::StrCat(op.name, ", ", NameOf(outcome)) : op.name;
    table.Row({name, absl::StrCat(op.ops), absl::StrCat(op.packets), Kilo(op.memory_bytes),
               Kilo(op.least_bytes), op.least_bytes == 0 ? "-" : Fixed(op.ratio(), 3),
               Kilo(op.activation_bytes), Kilo(op.written_bytes),
               op.memory_bytes == 0 ? "-" : Fixed(100 * op.memory_coalesced(), 2) + " %",
               op.vector_bytes == 0 ? "-" : Fixed(100 * op.coalesced(), 2) + " %",
               absl::StrCat(op.scratch_bytes), Kilo(op.link_bytes), absl::StrCat(op.instructions)});
  };
  for (const TokenCounts& counts : steps) {
    const bool first = &counts == &steps[0];
    for (const OpCounts& op : counts.ops) {
      const bool last = &op == &counts.ops.back();
      if (first || last) row(op, counts.outcome, last);
    }
    row(counts.total, counts.outcome, true);
  }
  table.Print();
  for (const TokenCounts& counts : steps) PrintSums(s, counts);
  std::printf("\n");
}

void WriteJson(const std::string& isa, const std::string& format, const TokenCounts& counts,
               cli::JsonWriter* out) {
  out->BeginObject().Field("isa", isa).Field("format", format).Field("layers", counts.layers);
  out->Field("outcome", NameOf(counts.outcome)).Field("packets", counts.step.packets);
  out->Field("host_waits", counts.step.host_waits).Field("doorbells", counts.step.submissions);
  out->Field("all_reduces", counts.step.all_reduces).Field("rounds", counts.step.rounds);
  out->Field("link_bytes", counts.step.link_bytes);
  const auto row = [&](const OpCounts& op) {
    out->BeginObject().Field("op", op.name).Field("ops", op.ops).Field("packets", op.packets);
    out->Field("memory_bytes", op.memory_bytes).Field("least_bytes", op.least_bytes);
    out->Field("memory_whole", op.memory_whole);
    out->Field("activation_bytes", op.activation_bytes).Field("written_bytes", op.written_bytes);
    out->Field("vector_bytes", op.vector_bytes).Field("full_bytes", op.full_bytes);
    out->Field("scratch_bytes", op.scratch_bytes).Field("link_bytes", op.link_bytes);
    out->Field("host_bytes", op.host_bytes).Field("instructions", op.instructions).EndObject();
  };
  out->Key("ops").BeginArray();
  for (const OpCounts& op : counts.ops) row(op);
  out->EndArray().Key("total");
  row(counts.total);
  out->EndObject();
}

Status Print(const Settings& s) {
  ASSIGN_OR_RETURN(model::ModelConfig config, cli::PresetConfig(s.preset));
  config.layers = static_cast<int32_t>(s.layers);
  config.sparse_layer.resize(static_cast<size_t>(s.layers), config.experts > 0);
  config = ShareOf(config, 8, static_cast<int32_t>(s.ranks));
  cli::JsonWriter json;
  if (s.json)
    json.BeginObject().Field("ranks", s.ranks).Field("shares", 8).Key("tables").BeginArray();
  for (const std::string format : {"bf16", "fp8-block", "mxfp4"}) {
    if (s.format != "all" && s.format != format) continue;
    for (const std::string isa : {"gfx942", "gfx950"}) {
      if (s.isa != "all" && s.isa != isa) continue;
      StepCountOptions options;
      options.isa = isa;
      options.ranks = static_cast<int32_t>(s.ranks);
      options.position = static_cast<uint32_t>(s.position);
      options.kv = format == "bf16" ? backend::KvType::kBF16 : backend::KvType::kFp8;
      ASSIGN_OR_RETURN(const model::SyntheticFormat synthetic,
                       model::SyntheticFormatFromName(format));
      ASSIGN_OR_RETURN(const std::vector<TokenCounts> steps,
                       CountSteps(config, synthetic, options,
                                  {Outcome::kLargest, Outcome::kDrawn, Outcome::kRaced, Outcome::kRead}));
      if (s.json) {
        for (const TokenCounts& counts : steps) WriteJson(isa, format, counts, &json);
      } else {
        PrintTable(absl::StrCat(s.preset, " ", format, " on ", isa), s, steps);
        std::fflush(stdout);
      }
    }
  }
  if (s.json) json.EndArray().EndObject().Print();
  return OkStatus();
}

int Main(int argc, char** argv) {
  Settings s;
  cli::Options options(
      "gpu_counts", "[options]",
      "Counts of one decoded token on the GPU path, by the interpreter of a virtual node.",
      "gpu_counts --format mxfp4 --isa gfx950\ngpu_counts --ranks 8 --json");
  options.Choice("isa", {"all", "gfx942", "gfx950"}, &s.isa, "the chip");
  options.Choice("format", {"all", "bf16", "fp8-block", "mxfp4"}, &s.format, "of the weights");
  options.Text("preset", "NAME", &s.preset, "the model (mainarch make-checkpoint --list)");
  options.Integer("ranks", &s.ranks, 1, 8, "shares that run: 1, 2, 4 or 8");
  options.Integer("layers", &s.layers, 1, 94, "layers");
  options.Integer("position", &s.position, 0, 40000, "of the token");
  options.Flag("json", &s.json, "one JSON object");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const auto code = options.Parse(arguments)) return *code;
  const Status status = Print(s);
  return status.ok() ? 0 : cli::Fail("gpu_counts", status);
}

}  // namespace
}  // namespace mainarch

int main(int argc, char** argv) { return mainarch::Main(argc, argv); }
