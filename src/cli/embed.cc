// SPDX-License-Identifier: MIT
//
// mainarch embed: texts as vectors, by a model that was made for that, and how alike they are.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/opened_model.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace mainarch::cli {
namespace {

constexpr size_t kShownNumbers = 4;
constexpr size_t kShownText = 32;       // bytes
constexpr size_t kMostCompared = 16;    // texts of a table
constexpr uint32_t kSequences = 16;     // that run together
constexpr size_t kTextsACall = 64;      // between two looks at the bar
constexpr uint32_t kStepTokens = 512;

struct Settings {
  ModelOptions model;
  std::vector<std::string> texts;
  std::string file, prompt, prompt_name, pooling = "default";
  int64_t dimensions = 0;
  bool raw = false, similarity = false, json = false;
};

void Declare(Settings* s, Options* options) {
  options->Section("Texts");
  s->model.DeclareModel(options, "checkpoint, with its tokenizer, or the name of one that was downloaded");
  options->Text("file", "PATH", &s->file, "read the texts from this file, a line each");
  options->Text("prompt-name", "NAME", &s->prompt_name,
                "put before each text what the checkpoint has for this use: query, document, ...; "
                "without it, its default");
  options->Text("prompt", "TEXT", &s->prompt, "put this before each text");
  options->Section("Vectors (what is not given is as the checkpoint says)");
  options->Choice("pooling", {"default", "last", "mean", "first"}, &s->pooling,
                  "of which tokens a text's vector is made");
  options->Integer("dimensions", &s->dimensions, 0, UINT32_MAX,
                   "so many of the first numbers alone; 0: all");
  options->Flag("raw", &s->raw, "as the model makes them, not of a length of one");
  options->Section("Output");
  options->Flag("similarity", &s->similarity, "the cosine of every two texts");
  options->Flag("json", &s->json, "one JSON object, with whole vectors");
  s->model.DeclareDevice(options);
  options->Positional("TEXT", &s->texts, 0, SIZE_MAX);
}

int32_t PoolingOf(const std::string& name) {
  if (name == "last") return MAINARCH_POOLING_LAST;
  if (name == "mean") return MAINARCH_POOLING_MEAN;
  return name == "first" ? MAINARCH_POOLING_FIRST : MAINARCH_POOLING_DEFAULT;
}
const char* NameOf(int32_t pooling) {
  return pooling == MAINARCH_POOLING_MEAN ? "mean" : pooling == MAINARCH_POOLING_FIRST ? "first" : "last";
}

// Lines that are not empty.
StatusOr<std::vector<std::string>> ReadTexts(const Settings& s) {
  if (!s.texts.empty()) return s.texts;
  ASSIGN_OR_RETURN(const std::string input, ReadInput(s.file));
  std::vector<std::string> texts;
  for (absl::string_view line : absl::StrSplit(input, '\n')) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty()) texts.emplace_back(line);
  }
  if (texts.empty()) return Error(Code::kInvalidArgument, "there is no text: every line is empty");
  return texts;
}

StatusOr<std::string> PromptOf(const Settings& s, const OpenedModel& opened) {
  if (!s.prompt.empty()) return s.prompt;
  const char* name = s.prompt_name.empty() ? nullptr : s.prompt_name.c_str();
  std::string text(1, '\0');
  size_t length = 0;
  mainarch_error error;
  while (true) {
    const mainarch_status status = mainarch_model_embed_prompt(opened.model.get(), name, text.data(),
                                                               text.size(), &length, &error);
    if (status != MAINARCH_ERROR_BUFFER_TOO_SMALL) RETURN_IF_ERROR(FromAbi(status, error));
    const bool whole = status == MAINARCH_OK;
    text.resize(whole ? length : length + 1);
    if (whole) return text;
  }
}

// Tokens of all texts, one after another.
struct Encoded {
  std::vector<uint32_t> tokens;
  std::vector<size_t> lengths;
  uint32_t prompt_tokens = 0;  // of each text
};

StatusOr<Encoded> EncodeAll(const OpenedModel& opened, const std::string& prompt,
                            const std::vector<std::string>& texts) {
  Encoded out;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens,
                     Encode(opened.tokenizer.get(), absl::StrCat(prompt, text),
                            MAINARCH_ENCODE_ADD_SPECIAL));
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
    out.lengths.push_back(tokens.size());
  }
  if (prompt.empty()) return out;
  // What stands before a text that is left out: the prompt's tokens, and a BOS with them.
  ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, Encode(opened.tokenizer.get(), prompt, 0));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> around,
                   Encode(opened.tokenizer.get(), prompt, MAINARCH_ENCODE_ADD_SPECIAL));
  const bool first = around.size() > tokens.size() && !tokens.empty() && around[0] != tokens[0];
  out.prompt_tokens = static_cast<uint32_t>(tokens.size() + (first ? 1 : 0));
  return out;
}

StatusOr<AbiEngine> CreateEngine(const Settings& s, const OpenedModel& opened, const Encoded& encoded) {
  auto options = Sized<mainarch_engine_options>();
  const size_t longest = *std::max_element(encoded.lengths.begin(), encoded.lengths.end());
  if (longest > opened.info.max_tokens) {
    return Error(Code::kKvFull, "a text has ", longest, " tokens, the model's limit is ", opened.info.max_tokens);
  }
  options.max_sequences = static_cast<uint32_t>(std::min<size_t>(encoded.lengths.size(), kSequences));
  options.max_sequence_tokens = static_cast<uint32_t>(longest);
  options.max_step_tokens = std::max(kStepTokens, options.max_sequences);
  options.kv_type = quant::PublicKvType(s.model.kv_type());
  if (s.model.fast) options.flags |= MAINARCH_ENGINE_FAST;
  if (s.model.mxfp8) options.flags |= MAINARCH_ENGINE_MXFP8;
  if (s.model.int8) options.flags |= MAINARCH_ENGINE_INT8;
  mainarch_engine* engine;
  mainarch_error error;
  RETURN_IF_ERROR(FromAbi(mainarch_engine_create(opened.model.get(), &options, &engine, &error), error));
  return AbiEngine(engine);
}

struct Vectors {
  size_t dimensions = 0;
  std::vector<float> values;  // [texts][dimensions]
  double seconds = 0;
  bool whole = true;  // not interrupted
  absl::Span<const float> operator[](size_t i) const {
    return absl::MakeConstSpan(values).subspan(i * dimensions, dimensions);
  }
};

StatusOr<Vectors> Run(const Settings& s, const mainarch_embed_info& info, mainarch_engine* engine,
                      const Encoded& encoded) {
  auto options = Sized<mainarch_embed_options>();
  options.pooling = s.pooling == "default" ? info.pooling : PoolingOf(s.pooling);
  options.dimensions = static_cast<uint32_t>(s.dimensions);
  options.flags = s.raw ? MAINARCH_EMBED_RAW : 0;
  if (info.include_prompt == 0) options.skip_tokens = encoded.prompt_tokens;
  Vectors out;
  out.dimensions = s.dimensions == 0 ? info.dimensions : static_cast<size_t>(s.dimensions);
  const size_t count = encoded.lengths.size();
  out.values.resize(count * out.dimensions);
  const InterruptHook cancel(InterruptHook::When::kAtOnce, [engine] { mainarch_engine_cancel(engine); });
  Progress progress("embedding", Progress::Unit::kItems);
  const int64_t start = NowNs();
  const uint32_t* tokens = encoded.tokens.data();
  for (size_t done = 0; done < count && !Interrupted();) {
    const size_t now = std::min(kTextsACall, count - done);
    mainarch_error error;
    size_t written = 0;
    const mainarch_status status =
        mainarch_engine_embed(engine, tokens, encoded.lengths.data() + done, now, &options,
                              out.values.data() + done * out.dimensions, now * out.dimensions, &written, &error);
    if (status == MAINARCH_ERROR_CANCELLED) break;
    RETURN_IF_ERROR(FromAbi(status, error));
    for (size_t i = done; i < done + now; ++i) tokens += encoded.lengths[i];
    done += now;
    progress.Update(done, count);
  }
  out.seconds = static_cast<double>(NowNs() - start) * 1e-9;
  out.whole = !Interrupted();
  return out;
}

double Product(absl::Span<const float> a, absl::Span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}
double Length(absl::Span<const float> a) { return std::sqrt(Product(a, a)); }
double Cosine(absl::Span<const float> a, absl::Span<const float> b) {
  const double lengths = Length(a) * Length(b);
  return lengths > 0 ? Product(a, b) / lengths : 0;
}

// One line of bounded length.
std::string Shown(absl::string_view text) {
  const bool cut = text.size() > kShownText;
  absl::string_view part = text.substr(0, kShownText);
  while (cut && !part.empty() && (static_cast<uint8_t>(text[part.size()]) & 0xc0) == 0x80) part.remove_suffix(1);
  return absl::StrCat(absl::Utf8SafeCEscape(part), cut ? "..." : "");
}

void PrintTable(const std::vector<std::string>& texts, const Encoded& encoded, const Vectors& vectors) {
  Table table({"<text", "tokens", "length", "<numbers"});
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string numbers;
    const absl::Span<const float> vector = vectors[i];
    for (size_t j = 0; j < std::min(kShownNumbers, vector.size()); ++j) {
      absl::StrAppend(&numbers, j == 0 ? "" : " ", Fixed(double{vector[j]}, 4));
    }
    if (vector.size() > kShownNumbers) numbers += " ...";
    table.Row({Shown(texts[i]), absl::StrCat(encoded.lengths[i]), Fixed(Length(vector), 4), numbers});
  }
  table.Print();
}

void PrintSimilarity(const std::vector<std::string>& texts, const Vectors& vectors) {
  std::vector<std::string> headings = {"<cosine"};
  const size_t count = std::min(texts.size(), kMostCompared);
  for (size_t i = 0; i < count; ++i) headings.push_back(absl::StrCat(i + 1));
  Table table(std::move(headings));
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> row = {absl::StrCat(i + 1, " ", Shown(texts[i]))};
    for (size_t j = 0; j < count; ++j) row.push_back(Fixed(Cosine(vectors[i], vectors[j]), 3));
    table.Row(std::move(row));
  }
  std::printf("\n");
  table.Print();
  if (texts.size() > count) std::printf("the first %zu of %zu; --json has all\n", count, texts.size());
}

void PrintJson(const Settings& s, const std::vector<std::string>& texts, const std::string& prompt,
               const mainarch_embed_info& info, const Encoded& encoded, const Vectors& vectors) {
  JsonWriter out;
  out.BeginObject().Field("dimensions", vectors.dimensions).Field("prompt", prompt);
  out.Field("pooling", NameOf(s.pooling == "default" ? info.pooling : PoolingOf(s.pooling)));
  out.Field("normalized", !s.raw && info.normalize != 0).Field("stated", info.stated != 0);
  out.Key("texts").BeginArray();
  for (size_t i = 0; i < texts.size(); ++i) {
    out.BeginObject().Field("text", texts[i]).Field("tokens", encoded.lengths[i]);
    out.Key("vector").BeginArray();
    for (const float x : vectors[i]) out.Value(double{x});
    out.EndArray().EndObject();
  }
  out.EndArray();
  if (s.similarity) {
    out.Key("similarity").BeginArray();
    for (size_t i = 0; i < texts.size(); ++i) {
      out.BeginArray();
      for (size_t j = 0; j < texts.size(); ++j) out.Value(Cosine(vectors[i], vectors[j]));
      out.EndArray();
    }
    out.EndArray();
  }
  if (!s.model.is_virtual()) out.Field("seconds", vectors.seconds);
  out.EndObject().Print();
}

StatusOr<int> Embed(const Settings& s, const std::vector<std::string>& texts, bool device_given) {
  ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(s.model, device_given, MAINARCH_MODEL_EMBED));
  auto info = Sized<mainarch_embed_info>();
  mainarch_error error;
  RETURN_IF_ERROR(FromAbi(mainarch_model_embed_info_get(opened.model.get(), &info, &error), error));
  if (s.dimensions > info.dimensions) {
    return Error(Code::kInvalidArgument, "--dimensions ", s.dimensions, " is more than the model's ", info.dimensions);
  }
  ASSIGN_OR_RETURN(const std::string prompt, PromptOf(s, opened));
  ASSIGN_OR_RETURN(const Encoded encoded, EncodeAll(opened, prompt, texts));
  ASSIGN_OR_RETURN(const AbiEngine engine, CreateEngine(s, opened, encoded));
  ASSIGN_OR_RETURN(const Vectors vectors, Run(s, info, engine.get(), encoded));
  if (!vectors.whole) return FailInterrupted("embed");
  if (s.json) {
    PrintJson(s, texts, prompt, info, encoded, vectors);
    return kExitOk;
  }
  PrintTable(texts, encoded, vectors);
  if (s.similarity) PrintSimilarity(texts, vectors);
  if (info.stated == 0 && s.pooling == "default") {
    std::fprintf(stderr, "note: the checkpoint does not say how to pool (no modules.json): the last token's vector\n");
  }
  return kExitOk;
}

}  // namespace

int RunEmbed(Arguments arguments) {
  Settings s;
  Options options("embed", "--model DIR [options] [TEXT...]",
                  "Prints the vector of each text, as an embedding model makes it. The texts are the "
                  "words given, else the lines of --file, else those of stdin.",
                  "mainarch embed --model Qwen/Qwen3-Embedding-0.6B --similarity \"a cat\" \"a dog\" \"a stone\"\n"
                  "mainarch embed --model DIR --prompt-name query --json < questions.txt\n"
                  "mainarch embed --model DIR --pooling mean --dimensions 256 --file texts.txt --json");
  Declare(&s, &options);
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.model.model.empty()) return options.Usage("--model DIR is missing");
  if (!s.texts.empty() && !s.file.empty()) return options.Usage("give TEXT or --file, not both");
  if (!s.prompt.empty() && !s.prompt_name.empty()) return options.Usage("give --prompt or --prompt-name, not both");
  if (s.texts.empty() && s.file.empty() && isatty(0) != 0) return options.Usage("TEXT is missing");
  const Status resolved = s.model.Resolve();
  if (!resolved.ok()) return options.Usage(resolved.message());
  const StatusOr<std::vector<std::string>> texts = ReadTexts(s);
  if (!texts.ok()) return Fail("embed", texts.status());
  const StatusOr<int> code = Embed(s, *texts, options.given("device") || s.model.tp > 0);
  return code.ok() ? *code : Fail("embed", code.status());
}

}  // namespace mainarch::cli
