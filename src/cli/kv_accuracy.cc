// SPDX-License-Identifier: MIT
//
// mainarch kv-accuracy: a text run through caches of every type, token by token what was given, and how
// far each next-token distribution is from that of the bf16 cache. A row attends to K and V as they lie
// in the cache, in whatever pieces the text is run, so this is decoding through the quantised cache.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/kv_ingredients.h"
#include "cli/kv_loss.h"
#include "cli/model_path.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "model/kv_pages.h"

namespace mainarch::cli {
namespace {

using backend::KvType;

struct Settings {
  ModelOptions model;
  std::string text;
  int64_t window = 0, tokens = 0, rows = 64;
  bool ingredients = false;
  bool json = false;
};

// Positions are taken together up to these.
constexpr uint32_t kEnds[] = {16, 128, 512, 2048, 8192, 32768, UINT32_MAX};

// Sums over tokens.
struct Sums {
  uint64_t tokens = 0, same_top = 0;
  double kl = 0, kl_f32 = 0, largest_kl = 0;

  double Mean(double sum) const { return tokens == 0 ? NAN : sum / static_cast<double>(tokens); }
  double top() const { return Mean(static_cast<double>(same_top)); }
};

// A type of cache, with what is held in fp8 beside.
struct Kind {
  KvType type;
  model::KvTiers tiers;
};

struct TypeReport {
  Kind kind;
  double bits = 0;  // an element of K and V
  double nll = 0;
  uint64_t predicted = 0;
  Sums all;
  std::vector<Sums> by_position = std::vector<Sums>(std::size(kEnds));

  double perplexity() const { return std::exp(nll / static_cast<double>(predicted)); }
};

const char* TypeName(const Kind& kind) { return quant::kKvTypeNames[static_cast<uint32_t>(kind.type)]; }
std::string NameOf(const Kind& kind) {
  return absl::StrCat(TypeName(kind), kind.tiers.near ? " near" : "", kind.tiers.outer ? " outer" : "");
}

// One sequence in a context of its own.
class Lane {
 public:
  static StatusOr<Lane> Create(const model::Model& model, const Settings& s, const Kind& kind) {
    Lane lane;
    const uint32_t pages = model::PagesFor(static_cast<uint64_t>(s.window));
    backend::ContextOptions options;
    options.kv_type = kind.type;
    if (kind.tiers.any()) {
      ASSIGN_OR_RETURN(options.variant, model::WithKvTiers(model.weights().program(), kind.tiers, kind.type));
    }
    const backend::Program& program = backend::ProgramOf(model.weights(), options);
    options.activations = s.model.activations();
    options.max_rows = options.max_logit_rows = static_cast<uint32_t>(s.rows);
    for (uint32_t i = 0; i < pages; ++i) lane.pages_.push_back(pages - 1 - i);
    for (const backend::Cache& cache : program.caches) {
      if (std::get_if<backend::PagedCache>(&cache) == nullptr) {
        return Error(Code::kUnsupported, "a model with recurrent state: not measured yet");
      }
      options.pages.push_back(pages);
      ++lane.caches_;
    }
    ASSIGN_OR_RETURN(lane.context_, model.weights().CreateContext(options));
    return lane;
  }

  // Rows from `position` on; their logarithms of probabilities.
  StatusOr<std::vector<std::vector<double>>> Run(absl::Span<const uint32_t> tokens, uint32_t position) {
    std::vector<backend::StepRow> rows;
    std::vector<uint32_t> logit_rows;
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({tokens[i], position + i, 0});
      logit_rows.push_back(i);
    }
    backend::StepCache cache = {pages_};
    cache.kept = absl::MakeConstSpan(pages_).first(std::min<size_t>(pages_.size(), model::kNearFirst / backend::kPageTokens));
    const std::vector<backend::StepCache> caches(caches_, cache);
    const backend::StepSequence sequence = {caches};
    const backend::Step step = {rows, absl::MakeConstSpan(&sequence, 1), logit_rows};
    RETURN_IF_ERROR(context_->Run(step));
    std::vector<std::vector<double>> out;
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      RETURN_IF_ERROR(context_->FetchLogits(i));
      out.push_back(LogSoftmax<float>(context_->Logits(i)));
    }
    return out;
  }

 private:
  std::unique_ptr<backend::Context> context_;
  std::vector<uint32_t> pages_;
  size_t caches_ = 0;
};

class Measurement {
 public:
  Measurement(const Settings& s, const std::vector<Kind>& kinds) : s_(s) {
    for (const Kind& kind : kinds) reports_.push_back({kind});
  }

  Status Run(const model::Model& model, absl::Span<const uint32_t> tokens) {
    const uint64_t dim = static_cast<uint64_t>(model.config().head_dim);
    std::vector<Lane> lanes;
    for (TypeReport& report : reports_) {
      report.bits = static_cast<double>(quant::KvTokenBytes(report.kind.type, dim, dim)) * 8 /
                    static_cast<double>(2 * dim);
      ASSIGN_OR_RETURN(Lane lane, Lane::Create(model, s_, report.kind));
      lanes.push_back(std::move(lane));
    }
    Progress progress("tokens", Progress::Unit::kItems);
    const size_t window = static_cast<size_t>(s_.window), rows = static_cast<size_t>(s_.rows);
    for (size_t at = 0; at < tokens.size();) {
      const size_t position = at % window;
      const size_t count = std::min({rows, window - position, tokens.size() - at});
      // What each row predicts; the last of a window nothing.
      const absl::Span<const uint32_t> next =
          tokens.subspan(at + 1, position + count == window ? count - 1 : count);
      std::vector<std::vector<std::vector<double>>> all;
      for (Lane& lane : lanes) {
        if (!progress.Update(at, tokens.size())) return Error(Code::kCancelled, "interrupted");
        ASSIGN_OR_RETURN(auto logs, lane.Run(tokens.subspan(at, count), static_cast<uint32_t>(position)));
        all.push_back(std::move(logs));
      }
      for (size_t i = 0; i < count; ++i) Add(all, i, static_cast<uint32_t>(position + i), next);
      at += count;
    }
    return OkStatus();
  }

  const std::vector<TypeReport>& reports() const { return reports_; }

 private:
  // [0] is f32, [1] bf16.
  void Add(const std::vector<std::vector<std::vector<double>>>& all, size_t row, uint32_t position,
           absl::Span<const uint32_t> next) {
    const size_t bucket = static_cast<size_t>(
        std::upper_bound(std::begin(kEnds), std::end(kEnds), position) - std::begin(kEnds));
    for (size_t t = 0; t < reports_.size(); ++t) {
      const std::vector<double>& q = all[t][row];
      const double kl = KullbackLeibler(all[1][row], q), kl_f32 = KullbackLeibler(all[0][row], q);
      for (Sums* sums : {&reports_[t].all, &reports_[t].by_position[bucket]}) {
        ++sums->tokens;
        sums->same_top += TopOf(all[1][row]) == TopOf(q);
        sums->kl += kl;
        sums->kl_f32 += kl_f32;
        sums->largest_kl = std::max(sums->largest_kl, kl);
      }
      if (row < next.size()) {
        reports_[t].nll -= q[next[row]];
        ++reports_[t].predicted;
      }
    }
  }

  const Settings& s_;
  std::vector<TypeReport> reports_;
};

std::string RangeText(size_t bucket) {
  const uint32_t from = bucket == 0 ? 0 : kEnds[bucket - 1];
  return kEnds[bucket] == UINT32_MAX ? absl::StrCat("from ", from)
                                     : absl::StrCat(from, " to ", kEnds[bucket] - 1);
}

void PrintTables(const Settings& s, const std::vector<TypeReport>& reports) {
  const auto number = [](double value) { return absl::StrFormat("%.3g", value); };
  std::printf("%llu tokens in windows of %lld, %s\n\n",
              static_cast<unsigned long long>(reports[0].all.tokens), static_cast<long long>(s.window),
              s.model.device.c_str());
  const double base = reports[1].perplexity();
  Table table({"<KV", "bits", "KL to bf16", "largest", "KL to f32", "same top", "perplexity", "to bf16"});
  for (const TypeReport& r : reports) {
    table.Row({NameOf(r.kind), Fixed(r.bits, 2), number(r.all.Mean(r.all.kl)), number(r.all.largest_kl),
               number(r.all.Mean(r.all.kl_f32)), Percent(r.all.top()), Fixed(r.perplexity(), 4),
               absl::StrFormat("%+.3f %%", (r.perplexity() / base - 1) * 100)});
  }
  table.Print();
  std::vector<std::string> headings = {"<position", "tokens"};
  for (const TypeReport& r : reports) {
    if (r.kind.type != KvType::kBF16) {
      headings.push_back(absl::StrCat("KL ", NameOf(r.kind)));
      headings.push_back("same top");
    }
  }
  std::printf("\n");
  Table by_position(headings);
  for (size_t b = 0; b < std::size(kEnds); ++b) {
    if (reports[0].by_position[b].tokens == 0) continue;
    std::vector<std::string> row = {RangeText(b), absl::StrCat(reports[0].by_position[b].tokens)};
    for (const TypeReport& r : reports) {
      if (r.kind.type == KvType::kBF16) continue;
      const Sums& sums = r.by_position[b];
      row.push_back(number(sums.Mean(sums.kl)));
      row.push_back(Percent(sums.top()));
    }
    by_position.Row(row);
  }
  by_position.Print();
}

void WriteSums(const Sums& sums, JsonWriter* out) {
  out->Field("tokens", sums.tokens).Field("kl", sums.Mean(sums.kl)).Field("largest_kl", sums.largest_kl);
  out->Field("kl_f32", sums.Mean(sums.kl_f32)).Field("same_top", sums.top());
}

void PrintJson(const Settings& s, const std::vector<TypeReport>& reports) {
  JsonWriter out;
  out.BeginObject().Field("model", s.model.model).Field("device", s.model.device);
  out.Field("window", s.window).Field("tokens", reports[0].all.tokens).Key("types").BeginArray();
  for (const TypeReport& r : reports) {
    out.BeginObject().Field("kv", TypeName(r.kind)).Field("near", r.kind.tiers.near);
    out.Field("outer", r.kind.tiers.outer).Field("bits", r.bits);
    WriteSums(r.all, &out);
    out.Field("predicted", r.predicted).Field("perplexity", r.perplexity());
    out.Key("positions").BeginArray();
    for (size_t b = 0; b < std::size(kEnds); ++b) {
      if (r.by_position[b].tokens == 0) continue;
      out.BeginObject().Field("from", b == 0 ? 0 : kEnds[b - 1]);
      WriteSums(r.by_position[b], &out);
      out.EndObject();
    }
    out.EndArray().EndObject();
  }
  out.EndArray().EndObject().Print();
}

// Their reference is slow, and meant to be: a text is cut here unless its length was asked for.
constexpr size_t kIngredientTokens = 1024;
constexpr int64_t kIngredientWindow = 512;

StatusOr<int> Ingredients(const Settings& s, std::vector<uint32_t> tokens) {
  IngredientSettings ingredients;
  if (s.tokens == 0) tokens.resize(std::min(tokens.size(), kIngredientTokens));
  ASSIGN_OR_RETURN(ingredients.directory, ModelPath(s.model.model));
  ingredients.window = static_cast<size_t>(s.window == 0 ? kIngredientWindow : s.window);
  ingredients.tokens = std::move(tokens);
  ingredients.json = s.json;
  return MeasureIngredients(ingredients);
}

StatusOr<int> Measure(Settings* s, bool one_type) {
  ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(s->model.model));
  ASSIGN_OR_RETURN(const std::string text, ReadInput(s->text));
  std::vector<uint32_t> tokens;
  RETURN_IF_ERROR(tokenizer->Encode(text, {}, &tokens));
  if (s->tokens > 0 && tokens.size() > static_cast<size_t>(s->tokens)) {
    tokens.resize(static_cast<size_t>(s->tokens));
  }
  if (tokens.size() < 2) return Error(Code::kInvalidArgument, "the text has fewer than two tokens");
  if (s->ingredients) return Ingredients(*s, std::move(tokens));
  ASSIGN_OR_RETURN(const auto model, LoadModel(s->model, s->model.model));
  for (const uint32_t token : tokens) {
    if (token < static_cast<uint32_t>(model->config().vocab)) continue;
    return Error(Code::kInvalidArgument, "token ", token, " of the text is outside the model's ",
                 model->config().vocab);
  }
  const int64_t limit = model->config().max_position;
  if (s->window == 0) s->window = std::min<int64_t>(limit, 16384);
  s->window = std::min({s->window, limit, static_cast<int64_t>(tokens.size())});
  s->rows = std::min(s->rows, s->window);
  const model::KvTiers near = {true, false}, all = {true, true};
  std::vector<Kind> kinds = {{KvType::kF32, {}}, {KvType::kBF16, {}}};
  if (one_type) {
    kinds.push_back({s->model.kv_type(), s->model.kv_tiers()});
  } else {
    for (const KvType type : {KvType::kFp8, KvType::kK8V4, KvType::kFp4}) kinds.push_back({type, {}});
  }
  if (!one_type && model->config().latent.latent == 0) {
    for (const KvType type : {KvType::kK8V4, KvType::kFp4}) {
      kinds.push_back({type, near});
      kinds.push_back({type, all});
    }
  }
  Measurement measurement(*s, kinds);
  RETURN_IF_ERROR(measurement.Run(*model, tokens));
  s->json ? PrintJson(*s, measurement.reports()) : PrintTables(*s, measurement.reports());
  return kExitOk;
}

}  // namespace

int RunKvAccuracy(Arguments arguments) {
  Settings s;
  Options options(
      "kv-accuracy", "--model DIR [options]",
      "What a smaller KV cache costs: a text is run through caches of every type, each token given, and "
      "the distribution of the next one compared with that of the bf16 cache: Kullback-Leibler "
      "divergence in nats, how often both have the same most likely token, perplexity; over all "
      "positions and by position; of four bits also with the first 16 and last 128 tokens in fp8 (near) and the first and "
      "last layer (outer). --kv takes one type instead of all. --ingredients takes apart what four "
      "bits are made of: scales, turned keys, what is kept in fp8 beside; on the text in fp64, from exact K "
      "and V, and on made-up attention with a sink and large channels.",
      "mainarch kv-accuracy --model tests/golden/trained --text tests/golden/trained/heldout.txt\n"
      "mainarch kv-accuracy --model tests/golden/trained --text tests/golden/trained/heldout.txt --ingredients\n"
      "mainarch kv-accuracy --model DIR --kv fp4 --window 16384 --json < text");
  s.model.DeclareModel(&options, "checkpoint directory, with its tokenizer");
  options.Text("text", "PATH", &s.text, "the text; else stdin");
  options.Integer("window", &s.window, 0, 1 << 20,
                  "tokens of a sequence; then another begins; 0: what the model takes, at most 16384");
  options.Integer("tokens", &s.tokens, 0, INT32_MAX, "of the text, at most; 0: all");
  options.Integer("rows", &s.rows, 1, 4096, "tokens of a step; changes nothing but the time");
  options.Flag("ingredients", &s.ingredients, "each ingredient of four bits alone, on one CPU in fp64: for small "
               "checkpoints; 1024 tokens in windows of 512 unless given");
  options.Flag("json", &s.json, "one JSON object");
  s.model.DeclareDevice(&options);
  s.model.DeclareTiers(&options);
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.model.model.empty()) return options.Usage("--model DIR is missing");
  const Status resolved = s.model.Resolve();
  if (!resolved.ok()) return options.Usage(resolved.message());
  const StatusOr<int> code = Measure(&s, options.given("kv"));
  return code.ok() ? *code : Fail("kv-accuracy", code.status());
}

}  // namespace mainarch::cli
