// SPDX-License-Identifier: MIT
//
// mainarch inspect: what a checkpoint holds and what running it costs, from its headers alone: no
// weight is read.
#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash_map.h"
#include "cli/command.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/step_cost.h"
#include "file/checkpoint.h"
#include "file/json.h"
#include "model/arch/arch.h"
#include "model/builder.h"
#include "model/checkpoint_tokenizer.h"
#include "model/tensor_names.h"
#include "model/unused_tensors.h"
#include "text/tokenizer.h"

namespace mainarch::cli {
namespace {

struct FormatSum {
  quant::Format format;
  uint64_t weights = 0, parameters = 0, bytes = 0;
};

struct Inspection {
  std::shared_ptr<const file::Checkpoint> checkpoint;
  model::ModelConfig config;
  std::vector<std::shared_ptr<const backend::Program>> programs;
  const backend::Program* program = nullptr;  // the first
  std::vector<FormatSum> formats;  // by bytes, descending
  uint64_t parameters = 0, weight_bytes = 0;
  model::UnusedTensors unused;
  std::vector<std::string> warnings;
};

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The element's, or the blocks'.
absl::string_view TypeOf(const file::TensorView& tensor) {
  if (tensor.blocks) return quant::InfoOf(*tensor.blocks).name;
  return NameOf(tensor.dtype);
}

// Every weight once, tied ones too.
void SumFormats(Inspection* out) {
  HashSet<const uint8_t*> seen;
  std::map<quant::Format, FormatSum> sums;
  for (const backend::Weight& weight : out->program->weights) {
    for (const quant::Matrix& matrix : weight.sources) {
      if (!seen.insert(matrix.data.data()).second) continue;
      FormatSum& sum = sums[matrix.format];
      sum.format = matrix.format;
      ++sum.weights;
      sum.parameters += static_cast<uint64_t>(matrix.rows * matrix.cols);
      // What lies apart shares its span with others.
      const bool apart = matrix.col_step != 0;
      sum.bytes += apart ? static_cast<uint64_t>(
                               quant::RowBytes(matrix.format, matrix.rows * matrix.cols))
                         : matrix.data.size() + matrix.scale.size();
    }
  }
  for (const auto& [format, sum] : sums) {
    out->formats.push_back(sum);
    out->parameters += sum.parameters;
    out->weight_bytes += sum.bytes;
  }
  std::sort(out->formats.begin(), out->formats.end(),
            [](const FormatSum& a, const FormatSum& b) { return a.bytes > b.bytes; });
}

bool HasFormat(const Inspection& inspection, quant::Format format) {
  return std::any_of(inspection.formats.begin(), inspection.formats.end(),
                     [format](const FormatSum& sum) { return sum.format == format; });
}

// What quantization_config claims, in one word; empty: there is none.
StatusOr<std::string> ClaimedQuantization(const file::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(auto json,
                   file::JsonDocument::Parse(checkpoint.config_json(),
                                             checkpoint.directory() + "/config.json", {}));
  ASSIGN_OR_RETURN(auto root, json.RootObject());
  simdjson::dom::object claim;
  if (root["quantization_config"].get(claim) != simdjson::SUCCESS) return std::string();
  std::string_view method;
  if (claim["quant_method"].get(method) != simdjson::SUCCESS) return std::string("unnamed");
  return std::string(method);
}

void WarnOfQuantization(Inspection* out) {
  const auto claimed = ClaimedQuantization(*out->checkpoint);
  if (!claimed.ok()) return;
  const bool fp8 =
      HasFormat(*out, quant::Format::kFp8Block) || HasFormat(*out, quant::Format::kFp8Channel);
  const bool fp4 = HasFormat(*out, quant::Format::kMxfp4);
  const bool quantised = std::any_of(
      out->formats.begin(), out->formats.end(),
      [](const FormatSum& sum) { return quant::InfoOf(sum.format).element_bits < 16; });
  if (claimed->empty()) {
    if (fp8 || fp4) {
      out->warnings.push_back(
          "weights are quantised, but config.json has no quantization_config; other programs may "
          "misread them");
    }
  } else if (!quantised) {
    out->warnings.push_back(
        absl::StrCat("config.json says quantization_config \"", *claimed,
                     "\", but no weight is quantised; the tensors are believed"));
  } else if (*claimed == "fp8" && fp4) {
    out->warnings.push_back(
        "config.json says quantization_config \"fp8\", but weights are mxfp4; the tensors are "
        "believed");
  }
}

void WarnOfUnusedTensors(Inspection* out) {
  std::vector<const backend::Program*> programs;
  for (const auto& program : out->programs) programs.push_back(program.get());
  out->unused = model::FindUnusedTensors(*out->checkpoint, programs);
  const std::string warning = Describe(out->unused);
  if (!warning.empty()) out->warnings.push_back(warning);
}

void WarnOfHead(Inspection* out) {
  const model::HeadSource source = model::FindHead(*out->checkpoint, out->config).source;
  if (source == model::HeadSource::kOwn && out->config.tied_embeddings) {
    out->warnings.push_back(
        "config.json says tie_word_embeddings, but the file's head is not its embedding; the head "
        "is believed");
  } else if (source == model::HeadSource::kMissing) {
    out->warnings.push_back(
        "the file is of a model without a head: logits are those of the embedding");
  }
}

void WarnOfTokenizer(Inspection* out) {
  if (!model::HasTokenizer(*out->checkpoint)) {
    out->warnings.push_back(out->checkpoint->gguf() == nullptr
                                ? "there is no tokenizer.json: tokens only, no text"
                                : "there is no vocabulary: tokens only, no text");
    return;
  }
  const auto tokenizer = model::ReadTokenizer(*out->checkpoint);
  if (!tokenizer.ok()) {
    out->warnings.push_back(std::string(tokenizer.status().message()));
  } else if ((*tokenizer)->vocab_size() > static_cast<uint32_t>(out->config.vocab)) {
    out->warnings.push_back(absl::StrCat("the tokenizer has ", (*tokenizer)->vocab_size(),
                                         " tokens, the model takes ", out->config.vocab));
  }
}

StatusOr<Inspection> Inspect(std::shared_ptr<const file::Checkpoint> checkpoint, int32_t ranks) {
  Inspection out;
  out.checkpoint = std::move(checkpoint);
  ASSIGN_OR_RETURN(out.config, model::ParseConfig(out.checkpoint->config_json(),
                                                  out.checkpoint->generation_config_json(),
                                                  out.checkpoint->directory()));
  ASSIGN_OR_RETURN(out.programs, model::BuildPrograms(*model::FindArch(out.config.model_type),
                                                      out.config, out.checkpoint, ranks));
  out.program = out.programs[0].get();
  SumFormats(&out);
  WarnOfQuantization(&out);
  WarnOfHead(&out);
  WarnOfUnusedTensors(&out);
  WarnOfTokenizer(&out);
  return out;
}

// Contexts at which a decoded token's cost is told: within what the model can hold.
std::vector<int64_t> Depths(const model::ModelConfig& config) {
  std::vector<int64_t> depths;
  for (const int64_t depth : {0, 1024, 8192, 32768, 131072}) {
    if (depth < config.max_position) depths.push_back(depth);
  }
  return depths;
}

std::string SamplingText(const model::ModelConfig& config) {
  if (config.temperature == 0) return "greedy";
  std::string text = absl::StrCat("temperature ", config.temperature);
  if (config.top_k > 0) absl::StrAppend(&text, ", top-k ", config.top_k);
  if (config.top_p > 0) absl::StrAppend(&text, ", top-p ", config.top_p);
  if (config.min_p > 0) absl::StrAppend(&text, ", min-p ", config.min_p);
  if (config.repetition_penalty != 1) {
    absl::StrAppend(&text, ", repetition penalty ", config.repetition_penalty);
  }
  return text;
}

std::string RopeText(const model::RopeConfig& rope) {
  switch (rope.kind) {
    case model::RopeKind::kPlain:
      return "";
    case model::RopeKind::kLinear:
      return absl::StrCat(", linear x", rope.factor);
    case model::RopeKind::kLlama3:
      return absl::StrCat(", Llama 3's x", rope.factor);
    case model::RopeKind::kYarn:
      return absl::StrCat(", YaRN x", rope.factor);
    case model::RopeKind::kLongRope:
      return ", LongRoPE";
  }
  return "";
}

// What layers have that not every model has.
std::string LayersText(const model::ModelConfig& c) {
  int64_t windows = 0, still = 0, sparse = 0;
  int32_t window = 0;
  for (size_t layer = 0; layer < static_cast<size_t>(c.layers); ++layer) {
    const model::LayerAttention own = c.AttentionOf(layer);
    windows += own.window > 0;
    window = std::max(window, own.window);
    still += own.rope == model::kNoRope;
    sparse += c.sparse_layer[layer];
  }
  std::vector<std::string> parts = {absl::StrCat(c.layers)};
  const auto delta = std::count(c.delta_layer.begin(), c.delta_layer.end(), true);
  if (delta > 0) {
    parts.push_back(absl::StrCat(delta, " gated delta nets of ", c.delta.key_heads, " and ",
                                 c.delta.value_heads, " heads"));
  }
  if (sparse > 0) parts.push_back(absl::StrCat(sparse, " with ", c.experts, " experts"));
  if (windows > 0) parts.push_back(absl::StrCat(windows, " with a window of ", window));
  if (still > 0) parts.push_back(absl::StrCat(still, " without rope"));
  if (c.rope.rotary_dim != c.head_dim) {
    parts.push_back(absl::StrCat(c.rope.rotary_dim, " of ", c.head_dim, " dimensions turn"));
  }
  if (c.ValueDim() != c.head_dim && c.latent.latent == 0) parts.push_back(absl::StrCat("values of ", c.ValueDim()));
  for (size_t layer = 0; layer < static_cast<size_t>(c.layers); ++layer) {
    if (c.KvHeadsOf(layer) == c.kv_heads) continue;
    parts.push_back(absl::StrCat(c.KvHeadsOf(layer), " KV heads in layers with a window"));
    break;
  }
  if (c.attention.sinks) parts.push_back("sinks");
  return absl::StrJoin(parts, ", ");
}

std::string HeadText(model::HeadSource source) {
  switch (source) {
    case model::HeadSource::kOwn:
      return "its own matrix";
    case model::HeadSource::kTied:
      return "the embedding (tied)";
    case model::HeadSource::kMissing:
      return "none in the file: the embedding stands in";
  }
  return "";
}

void PrintTensors(const file::Checkpoint& checkpoint) {
  Table table({"<tensor", "<dtype", "<shape", "bytes"});
  for (const file::TensorView& tensor : checkpoint.tensors()) {
    table.Row({tensor.name, std::string(TypeOf(tensor)), ShapeText(tensor.shape),
               absl::StrCat(tensor.bytes.size())});
  }
  table.Print();
  std::printf("\n");
}

void PrintSummary(const Inspection& i, backend::KvType kv) {
  const model::ModelConfig& c = i.config;
  Facts facts;
  facts.Add("checkpoint", i.checkpoint->directory());
  facts.Add("model", Describe(c));
  facts.Add("longest sequence",
            absl::StrCat(c.max_position, " tokens, rope theta ", c.rope.theta, RopeText(c.rope)));
  facts.Add("layers", LayersText(c));
  if (model::HasDraftHead(*i.checkpoint)) facts.Add("drafts", "a layer that guesses tokens ahead");
  facts.Add("head", HeadText(model::FindHead(*i.checkpoint, c).source));
  facts.Add("end tokens", c.eos_ids.empty() ? "none" : absl::StrJoin(c.eos_ids, ", "));
  facts.Add("sampling", SamplingText(c));
  facts.Add("tensors", absl::StrCat(i.checkpoint->tensors().size(), ", files of ",
                                    Bytes(i.checkpoint->file_bytes())));
  facts.Add("parameters", absl::StrCat(Count(i.parameters), " (", i.parameters, ")"));
  facts.Add(
      "weights",
      absl::StrCat(
          Bytes(i.weight_bytes), ", ",
          Fixed(8.0 * static_cast<double>(i.weight_bytes) / static_cast<double>(i.parameters), 2),
          " bits a parameter"));
  facts.Add("KV of a token", absl::StrCat(KvBytesPerToken(c, kv), " bytes"));
  facts.Add("ranks",
            absl::StrCat(i.program->ranks, ", ", StepCost(*i.program, 1, 0, kv).all_reduces,
                         " all-reduces a token"));
  facts.Print();
}

void PrintFormats(const Inspection& i) {
  Table table({"<format", "weights", "parameters", "bytes", "share"});
  for (const FormatSum& sum : i.formats) {
    table.Row({std::string(quant::NameOf(sum.format)), absl::StrCat(sum.weights),
               Count(sum.parameters), Bytes(sum.bytes),
               Percent(static_cast<double>(sum.bytes) / static_cast<double>(i.weight_bytes))});
  }
  std::printf("\n");
  table.Print();
}

void PrintCosts(const Inspection& i, backend::KvType kv) {
  Table table({"decoded token at context", "weight bytes", "KV bytes", "flops"});
  for (const int64_t depth : Depths(i.config)) {
    const backend::Cost cost = StepCost(*i.program, 1, depth, kv);
    table.Row(
        {absl::StrCat(depth), Bytes(cost.weight_bytes), Bytes(cost.kv_bytes), Count(cost.flops)});
  }
  std::printf("\n");
  table.Print();
}

void WriteConfig(const model::ModelConfig& c, JsonWriter* out) {
  out->Key("config").BeginObject().Field("model_type", c.model_type);
  out->Field("hidden", c.hidden).Field("layers", c.layers).Field("heads", c.heads);
  out->Field("kv_heads", c.kv_heads).Field("head_dim", c.head_dim).Field("value_dim", c.ValueDim());
  out->Field("intermediate", c.intermediate).Field("vocab", c.vocab);
  out->Field("experts", c.experts).Field("experts_per_token", c.experts_per_token);
  out->Field("moe_intermediate", c.moe_intermediate).Field("max_position", c.max_position);
  out->Field("tied_embeddings", c.tied_embeddings).Field("rope_theta", c.rope.theta);
  out->Field("yarn", c.rope.kind == model::RopeKind::kYarn).List("eos_ids", c.eos_ids);
  out->Field("temperature", c.temperature).Field("top_p", c.top_p).Field("top_k", c.top_k);
  out->EndObject();
}

void WriteTensors(const file::Checkpoint& checkpoint, JsonWriter* out) {
  out->Key("tensors").BeginArray();
  for (const file::TensorView& tensor : checkpoint.tensors()) {
    out->BeginObject().Field("name", tensor.name).Field("dtype", TypeOf(tensor));
    out->List("shape", tensor.shape).Field("bytes", tensor.bytes.size()).EndObject();
  }
  out->EndArray();
}

void PrintJson(const Inspection& i, backend::KvType kv, bool tensors, bool program) {
  JsonWriter out;
  out.BeginObject().Field("directory", i.checkpoint->directory());
  WriteConfig(i.config, &out);
  out.Field("parameters", i.parameters).Field("weight_bytes", i.weight_bytes);
  out.Field("file_bytes", i.checkpoint->file_bytes()).Field("ranks", i.program->ranks);
  out.Field("kv_bytes_per_token", KvBytesPerToken(i.config, kv));
  out.Key("formats").BeginArray();
  for (const FormatSum& sum : i.formats) {
    out.BeginObject().Field("format", quant::NameOf(sum.format)).Field("weights", sum.weights);
    out.Field("parameters", sum.parameters).Field("bytes", sum.bytes).EndObject();
  }
  out.EndArray().Key("decode").BeginArray();
  for (const int64_t depth : Depths(i.config)) {
    const backend::Cost cost = StepCost(*i.program, 1, depth, kv);
    out.BeginObject().Field("context", depth).Field("weight_bytes", cost.weight_bytes);
    out.Field("kv_bytes", cost.kv_bytes).Field("flops", cost.flops).EndObject();
  }
  out.EndArray().List("unused_tensors", i.unused.names).List("warnings", i.warnings);
  if (tensors) WriteTensors(*i.checkpoint, &out);
  if (program) out.Field("program", backend::Print(*i.program));
  out.EndObject().Print();
}

}  // namespace

int RunInspect(Arguments arguments) {
  ModelOptions model;
  bool tensors = false, program = false, json = false;
  std::vector<std::string> words;
  Options options("inspect", "DIR [options]",
                  "Says what a checkpoint is: geometry, tensors, formats as the tensors have them, "
                  "and the bytes "
                  "and flops of a decoded token (weights as stored; of experts, those that one "
                  "token uses). Reads "
                  "headers only.",
                  "mainarch inspect tests/golden/trained\n"
                  "mainarch inspect tests/golden/trained --tensors\n"
                  "mainarch inspect tests/golden/trained --program --tp 2");
  options.Flag("tensors", &tensors, "list every tensor");
  options.Flag("program", &program, "list the operators of a step, as one rank runs them");
  options.Integer("tp", &model.tp, 0, 8, "ranks (1, 2, 4 or 8); 0: 1");
  options.Choice("kv", {"bf16", "fp8", "f32"}, &model.kv, "type of the KV cache");
  options.Flag("json", &json, "one JSON object");
  options.Positional("DIR", &words, 1, 1);
  if (const auto code = options.Parse(arguments)) return *code;
  const int32_t ranks = model.tp == 0 ? 1 : static_cast<int32_t>(model.tp);
  if ((ranks & (ranks - 1)) != 0) return options.Usage("--tp must be 1, 2, 4 or 8");

  const StatusOr<std::string> path = ModelPath(words[0]);
  if (!path.ok()) return Fail("inspect", path.status());
  auto checkpoint = file::Checkpoint::Open(*path);
  if (!checkpoint.ok()) return Fail("inspect", checkpoint.status());
  // Before anything that may be refused: the list is what one then needs.
  if (tensors && !json) PrintTensors(**checkpoint);
  auto inspection = Inspect(*checkpoint, ranks);
  if (!inspection.ok()) return Fail("inspect", inspection.status());
  const backend::KvType kv = model.kv_type();
  if (json) {
    PrintJson(*inspection, kv, tensors, program);
    return kExitOk;
  }
  PrintSummary(*inspection, kv);
  PrintFormats(*inspection);
  PrintCosts(*inspection, kv);
  if (program) std::printf("\n%s", backend::Print(*inspection->program).c_str());
  for (const std::string& warning : inspection->warnings) {
    std::printf("\nwarning: %s", warning.c_str());
  }
  if (!inspection->warnings.empty()) std::printf("\n");
  return kExitOk;
}

}  // namespace mainarch::cli
