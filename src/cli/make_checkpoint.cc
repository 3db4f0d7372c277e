// SPDX-License-Identifier: MIT
//
// mainarch make-checkpoint: synthetic checkpoints, the same bytes on every machine.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/geometry.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "file/checkpoint.h"
#include "model/arch/arch.h"
#include "model/synthetic.h"

namespace mainarch::cli {
namespace {

void PrintPresets(bool json) {
  if (json) {
    JsonWriter out;
    out.BeginObject().Key("presets").BeginArray();
    for (const Preset& preset : Presets()) {
      out.BeginObject().Field("name", preset.name).Field("geometry", Describe(preset.config));
      out.Field("about", preset.about).EndObject();
    }
    out.EndArray().EndObject().Print();
    return;
  }
  Table table({"<preset", "<geometry", "<"});
  for (const Preset& preset : Presets()) {
    table.Row({preset.name, Describe(preset.config), preset.about});
  }
  table.Print();
}

}  // namespace

int RunMakeCheckpoint(Arguments arguments) {
  GeometryOptions geometry("tiny-moe");
  std::string format = "bf16";
  uint64_t seed = 0;
  int64_t shards = 1;
  bool json = false, list = false, draft_head = false;
  std::vector<std::string> words;
  Options options(
      "make-checkpoint", "DIR [options]",
      "Writes config.json, generation_config.json and safetensors files of random weights, hashed "
      "from the tensors' names: the same names, seed and format give the same bytes everywhere. "
      "DIR "
      "is made if it is absent and must hold no checkpoint. There is no tokenizer in it, so "
      "generate "
      "cannot use it; model-decode, bench and inspect can.",
      "mainarch make-checkpoint /tmp/moe --preset moe-64x --format mxfp4\n"
      "mainarch make-checkpoint /tmp/small --like tests/golden/trained --layers 2 --seed 7\n"
      "mainarch make-checkpoint --list");
  geometry.Declare(&options);
  options.Choice("format", FormatNames(), &format, "of the weights");
  options.Unsigned("seed", &seed, "another seed, other weights");
  options.Integer("shards", &shards, 1, 256, "safetensors files");
  options.Flag("draft-head", &draft_head, "with the layer that drafts; of the Qwen3.5 and Qwen3-Next families");
  options.Flag("list", &list, "list the presets and end");
  options.Flag("json", &json, "one JSON object");
  geometry.DeclareFields(&options);
  options.Positional("DIR", &words, 0, 1);
  if (const auto code = options.Parse(arguments)) return *code;
  if (list) {
    PrintPresets(json);
    return kExitOk;
  }
  if (words.empty()) return options.Usage("DIR is missing");
  if (options.given("preset") && options.given("like")) {
    return options.Usage("give --preset or --like, not both");
  }
  auto config = geometry.Resolve();
  if (!config.ok()) return options.Usage(config.status().message());

  if (draft_head && model::FindArch(config->model_type)->draft == nullptr) {
    return options.Usage("--draft-head: " + config->model_type + " has no layer that drafts");
  }

  Progress progress("writing", Progress::Unit::kBytes);
  model::SyntheticOptions synthetic;
  synthetic.format = *model::SyntheticFormatFromName(format);
  synthetic.seed = seed;
  synthetic.shards = static_cast<int32_t>(shards);
  synthetic.draft_head = draft_head;
  synthetic.progress = progress.Callback();
  const int64_t start = NowNs();
  const Status status = model::WriteSyntheticCheckpoint(*config, words[0], synthetic);
  progress.Clear();
  if (!status.ok()) return Fail("make-checkpoint", status);
  const double seconds = static_cast<double>(NowNs() - start) * 1e-9;
  auto checkpoint = file::Checkpoint::Open(words[0]);
  if (!checkpoint.ok()) return Fail("make-checkpoint", checkpoint.status());
  const uint64_t bytes = (*checkpoint)->file_bytes();
  const size_t tensors = (*checkpoint)->tensors().size();
  if (json) {
    JsonWriter out;
    out.BeginObject().Field("directory", words[0]).Field("format", format).Field("seed", seed);
    out.Field("shards", shards).Field("tensors", tensors).Field("bytes", bytes);
    out.Field("seconds", seconds).EndObject().Print();
  } else {
    std::printf("%s: %s\n%s, %zu tensors, %s in %s\n", words[0].c_str(), Describe(*config).c_str(),
                format.c_str(), tensors, Bytes(bytes).c_str(), Seconds(seconds).c_str());
  }
  return kExitOk;
}

}  // namespace mainarch::cli
