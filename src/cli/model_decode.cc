// SPDX-License-Identifier: MIT
//
// mainarch model-decode: decodes through the engine and, step by step, through the fp64 reference,
// and says how far apart they are. Without arguments it makes its own model, so that one command
// shows whether a build computes the right thing on this machine.
#include <xxhash.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/geometry.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "decode/engine.h"
#include "model/synthetic_values.h"
#include "reference/decoder.h"

namespace mainarch::cli {
namespace {

struct Settings {
  ModelOptions model;
  GeometryOptions geometry{"tiny-moe"};
  std::string format = "bf16";
  uint64_t seed = 1;
  int64_t tokens = 16, prompt_tokens = 24;
  bool verify = true, json = false;
  double bound = 0;  // 0: BoundFor
};

// How far the logits of a step may be off, relative to the largest. The reference uses the K and V
// that the cache holds, each compared with its own first: arithmetic alone is between the two. That
// is fp32 on CPUs. On GPUs the matrix instructions of attention take queries, probabilities and
// fp32 K and V as two bf16 each, 2^-17 of a value, in every layer.
//
// With bf16 activations every product is off by up to 2^-8 of the sum of its terms' magnitudes;
// over layers these add like noise. K and V are then off by more than a rounding, too: the
// reference rounds its own.
//
// 8 bits of activations are off by up to 1 / 254 of the largest of 32, some two and a half times as far; MXFP8 by up to 2^-4 of
// a value, sixteen times as far as bf16.
constexpr double kCpuBound = 2e-5, kGpuBound = 1e-4, kFastBound = 6e-2, kInt8Bound = 0.15, kMxfp8Bound = 0.5;

double BoundFor(const model::Model& model, const ModelOptions& options) {
  if (options.mxfp8) return kMxfp8Bound;
  if (options.rounds()) return options.int8 ? kInt8Bound : kFastBound;
  return absl::StartsWith(model.backend().devices()[0].isa, "gfx") ? kGpuBound : kCpuBound;
}

struct StepResult {
  uint64_t position = 0;  // of the last token run
  uint32_t token = 0;     // the likeliest next one, which the next step runs
  double seconds = 0;
  uint64_t logits_hash = 0;  // XXH64 of the logits' bytes: equal where all bits are
  // Against the reference.
  double error = 0;        // max |difference| / max |logit|
  uint32_t error_at = 0;   // token id with the largest difference
  uint32_t reference = 0;  // its likeliest token
};

template <class T>
uint32_t ArgMax(absl::Span<const T> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<uint32_t>(best);
}

void Compare(absl::Span<const float> logits, absl::Span<const double> reference, StepResult* out) {
  double largest = 0, worst = -1;
  for (size_t i = 0; i < reference.size(); ++i) {
    largest = std::max(largest, std::fabs(reference[i]));
    double difference = std::fabs(static_cast<double>(logits[i]) - reference[i]);
    if (std::isnan(difference)) difference = INFINITY;
    if (difference > worst) {
      worst = difference;
      out->error_at = static_cast<uint32_t>(i);
    }
  }
  out->error = worst / largest;
  out->reference = ArgMax(reference);
}

class Run {
 public:
  Run(const Settings& settings, std::shared_ptr<const model::Model> model)
      : settings_(settings), model_(std::move(model)) {}

  Status Init() {
    decode::EngineOptions options;
    options.max_sequence_tokens = static_cast<uint32_t>(settings_.prompt_tokens + settings_.tokens);
    options.kv_type = settings_.model.kv_type();
    options.kv_tiers = settings_.model.kv_tiers();
    // What the near cache holds is there for the reference while it is among the last tokens.
    if (options.kv_tiers.near && settings_.verify) options.max_step_tokens = model::kNearLast / 2;
    options.activations = settings_.model.activations();
    options.resident = settings_.model.resident_mode();
    ASSIGN_OR_RETURN(engine_, decode::Engine::Create(model_, options));
    cancel_.emplace(InterruptHook::When::kAtOnce, [this] { engine_->Cancel(); });
    decode::SequenceOptions sequence;
    sequence.manual = true;
    sequence.ignore_eos = true;
    ASSIGN_OR_RETURN(sequence_, engine_->Open(sequence));
    if (settings_.verify) {
      ASSIGN_OR_RETURN(reference_,
                       reference::Decoder::Create(model_->shared_checkpoint(), model_->config(),
                                                  options.kv_type));
      const bool follows = !settings_.model.rounds();
      reference_->UseTiers(options.kv_tiers, follows ? ReaderOf(true) : nullptr);
      if (follows) reference_->Follow(ReaderOf(false));
    }
    const uint64_t key = model::SyntheticKey("prompt", settings_.seed);
    for (int64_t i = 0; i < settings_.prompt_tokens; ++i) {
      next_.push_back(static_cast<uint32_t>(model::SplitMix64(key + static_cast<uint64_t>(i)) %
                                            static_cast<uint64_t>(model_->config().vocab)));
    }
    return OkStatus();
  }

  // Of the cache, or of the near one.
  reference::CacheReader ReaderOf(bool near) {
    return [this, near](size_t layer, size_t position, std::vector<float>* k, std::vector<float>* v) -> Status {
      auto stored = engine_->ReadKv(sequence_, static_cast<int32_t>(layer), position, near);
      // Behind the window it is gone already.
      if (!stored.ok() && CodeOf(stored.status()) == Code::kNotFound) return OkStatus();
      RETURN_IF_ERROR(stored.status());
      *k = std::move(stored->k);
      *v = std::move(stored->v);
      return OkStatus();
    };
  }

  backend::StepCounts counts() const { return engine_->counts(); }

  // The prompt at first, then the token that the step before chose.
  StatusOr<StepResult> Step() {
    StepResult out;
    RETURN_IF_ERROR(engine_->Append(sequence_, next_));
    bool more = true;
    while (more) {  // a long prompt takes several
      if (Interrupted()) return Error(Code::kCancelled, "interrupted");
      const int64_t start = NowNs();
      ASSIGN_OR_RETURN(more, engine_->RunStep());
      out.seconds += static_cast<double>(NowNs() - start) * 1e-9;
      if (settings_.model.kv_near) RETURN_IF_ERROR(FollowSteps());
    }
    ASSIGN_OR_RETURN(const absl::Span<const float> logits, engine_->Logits(sequence_));
    ASSIGN_OR_RETURN(const decode::SequenceInfo info, engine_->InfoOf(sequence_));
    out.position = info.tokens - 1;
    out.token = ArgMax(logits);
    out.logits_hash = XXH64(logits.data(), logits.size() * sizeof(float), 0);
    if (reference_ != nullptr) {
      RETURN_IF_ERROR(FollowSteps());
      Compare(logits, reference_->logits(), &out);
    }
    next_ = {out.token};
    return out;
  }

 private:
  // The reference runs what the engine has run of `next_`, which is all that is new.
  Status FollowSteps() {
    if (reference_ == nullptr) return OkStatus();
    ASSIGN_OR_RETURN(const decode::SequenceInfo info, engine_->InfoOf(sequence_));
    const uint64_t begin = info.tokens - next_.size();
    while (reference_->position() < info.position) {
      if (Interrupted()) return Error(Code::kCancelled, "interrupted");
      RETURN_IF_ERROR(reference_->Extend({next_[reference_->position() - begin]}));
    }
    return OkStatus();
  }

  const Settings& settings_;
  const std::shared_ptr<const model::Model> model_;
  std::unique_ptr<decode::Engine> engine_;
  std::optional<InterruptHook> cancel_;  // ends the step in flight
  decode::SequenceId sequence_ = 0;
  std::unique_ptr<reference::Decoder> reference_;
  std::vector<uint32_t> next_;
};

struct Report {
  std::string checkpoint;
  const Settings* settings;
  const model::Model* model;
  std::vector<StepResult> steps;
  double bound = 0;
  backend::StepCounts counts;  // of the last step, a decode step

  size_t Worst() const {
    size_t worst = 0;
    for (size_t i = 1; i < steps.size(); ++i) {
      if (steps[i].error > steps[worst].error) worst = i;
    }
    return worst;
  }
  bool ok() const { return !settings->verify || steps[Worst()].error <= bound; }
  double TokensPerSecond() const {
    double seconds = 0;
    for (size_t i = 1; i < steps.size(); ++i) seconds += steps[i].seconds;
    return seconds > 0 ? static_cast<double>(steps.size() - 1) / seconds : NAN;
  }
};

std::string Scientific(double value) { return absl::StrFormat("%.2e", value); }

void PrintReport(const Report& report) {
  const Settings& s = *report.settings;
  std::printf("%s\n%s\n%s, KV %s, %u threads, %s\n\n", report.checkpoint.c_str(),
              Describe(report.model->config()).c_str(), s.model.device.c_str(), s.model.kv.c_str(),
              report.model->backend().devices()[0].compute_units,
              report.model->backend().devices()[0].isa.c_str());
  std::vector<std::string> headings = {"step", "position", "token"};
  if (!s.model.is_virtual()) headings.push_back("time");
  if (s.verify) headings.insert(headings.end(), {"relative error", "at token", "<reference"});
  Table table(std::move(headings));
  for (size_t i = 0; i < report.steps.size(); ++i) {
    const StepResult& step = report.steps[i];
    std::vector<std::string> row = {absl::StrCat(i), absl::StrCat(step.position),
                                    absl::StrCat(step.token)};
    if (!s.model.is_virtual()) row.push_back(Seconds(step.seconds));
    if (s.verify) {
      row.push_back(Scientific(step.error));
      row.push_back(absl::StrCat(step.error_at));
      row.push_back(step.reference == step.token ? "same token"
                                                 : absl::StrCat("token ", step.reference));
    }
    table.Row(std::move(row));
  }
  table.Print();
  if (s.model.is_virtual()) {
    std::printf("\na virtual node: its times say nothing about hardware and are not shown\n");
  } else {
    std::printf("\nprompt of %lld tokens in %s; decode %s tok/s, the mean of %zu steps\n",
                static_cast<long long>(s.prompt_tokens), Seconds(report.steps[0].seconds).c_str(),
                Fixed(report.TokensPerSecond(), 1).c_str(), report.steps.size() - 1);
  }
  const backend::StepCounts& c = report.counts;
  if (c.packets > 0) {
    std::printf(
        "a decoded token on each GPU: %u packets, %u doorbell, %u wait of the host; %u "
        "all-reduces in %u fabric rounds, %llu bytes sent to peers (least possible %llu)\n",
        c.packets, c.submissions, c.host_waits, c.all_reduces, c.rounds,
        static_cast<unsigned long long>(c.link_bytes),
        static_cast<unsigned long long>(c.least_link_bytes));
  }
  if (!s.verify) return;
  const StepResult& worst = report.steps[report.Worst()];
  std::printf("worst relative error %s at step %zu, token %u; bound %s: %s\n",
              Scientific(worst.error).c_str(), report.Worst(), worst.error_at,
              Scientific(report.bound).c_str(), report.ok() ? "ok" : "TOO FAR");
}

void PrintJson(const Report& report) {
  const Settings& s = *report.settings;
  JsonWriter out;
  out.BeginObject().Field("checkpoint", report.checkpoint).Field("device", s.model.device);
  out.Field("ranks", report.model->backend().ranks()).Field("kv", s.model.kv);
  out.Field("isa", report.model->backend().devices()[0].isa)
      .Field("prompt_tokens", s.prompt_tokens);
  out.Field("virtual", s.model.is_virtual()).Field("verified", s.verify);
  if (!s.model.is_virtual()) out.Field("tokens_per_second", report.TokensPerSecond());
  const backend::StepCounts& c = report.counts;
  if (c.packets > 0) {
    out.Key("counts").BeginObject().Field("packets", c.packets);
    out.Field("doorbells", c.submissions).Field("host_waits", c.host_waits);
    out.Field("all_reduces", c.all_reduces).Field("rounds", c.rounds);
    out.Field("link_bytes", c.link_bytes).Field("least_link_bytes", c.least_link_bytes).EndObject();
  }
  out.Key("steps").BeginArray();
  for (const StepResult& step : report.steps) {
    out.BeginObject().Field("position", step.position).Field("token", step.token);
    out.Field("logits_hash", absl::StrFormat("%016x", step.logits_hash));
    if (!s.model.is_virtual()) out.Field("seconds", step.seconds);
    if (s.verify) {
      out.Field("relative_error", step.error).Field("at_token", step.error_at);
      out.Field("reference_token", step.reference);
    }
    out.EndObject();
  }
  out.EndArray();
  if (s.verify) {
    const size_t worst = report.Worst();
    out.Key("worst").BeginObject().Field("relative_error", report.steps[worst].error);
    out.Field("step", worst).Field("token", report.steps[worst].error_at).EndObject();
    out.Field("bound", report.bound);
  }
  out.Field("interrupted", Interrupted());
  out.Field("ok", report.ok()).EndObject().Print();
}

StatusOr<int> Decode(Settings* s) {
  std::unique_ptr<TemporaryDirectory> temporary;
  std::string directory = s->model.model;
  Report report;
  report.checkpoint = directory;
  if (directory.empty()) {
    ASSIGN_OR_RETURN(const model::ModelConfig config, s->geometry.Resolve());
    ASSIGN_OR_RETURN(temporary, MakeTemporaryCheckpoint(
                                    config, *model::SyntheticFormatFromName(s->format), s->seed));
    directory = temporary->path();
    report.checkpoint = absl::StrCat("synthetic ", s->format, ", seed ", s->seed);
  }
  ASSIGN_OR_RETURN(auto model, LoadModel(s->model, directory));
  report.settings = s;
  report.model = model.get();
  report.bound = s->bound > 0 ? s->bound : BoundFor(*model, s->model);
  Run run(*s, model);
  RETURN_IF_ERROR(run.Init());
  {
    Progress progress(s->verify ? "decoding and verifying" : "decoding", Progress::Unit::kItems);
    for (int64_t i = 0; i < s->tokens; ++i) {
      const StatusOr<StepResult> step = run.Step();
      if (Interrupted() && !report.steps.empty()) break;
      RETURN_IF_ERROR(step.status());
      report.steps.push_back(*step);
      report.counts = run.counts();
      progress.Update(static_cast<uint64_t>(i + 1), static_cast<uint64_t>(s->tokens));
    }
  }
  s->json ? PrintJson(report) : PrintReport(report);
  if (Interrupted()) return FailInterrupted("model-decode");
  return report.ok() ? kExitOk : kExitFailure;
}

}  // namespace

int RunModelDecode(Arguments arguments) {
  Settings s;
  Options options(
      "model-decode", "[options]",
      "Decodes greedily after a prompt of hashed tokens and compares the logits of every step with "
      "those of an independent fp64 decoder: the largest difference over the largest logit. K and "
      "V "
      "of the cache are read back, compared element by element with the reference's, and used by "
      "it from there on, so that what is left is the arithmetic. Without --model it makes a small "
      "Qwen3-MoE, which is removed at the end. The reference takes time: seconds a token from a "
      "billion parameters on.",
      "mainarch model-decode\n"
      "mainarch model-decode --kv f32 --format mxfp4 --tp 2\n"
      "mainarch model-decode --model DIR --tokens 4 --prompt-tokens 8\n"
      "mainarch model-decode --model DIR --no-verify --tokens 100");
  s.model.DeclareModel(&options, "checkpoint directory; none: a synthetic one");
  options.Integer("tokens", &s.tokens, 1, 1 << 20, "steps: the prompt is the first");
  options.Integer("prompt-tokens", &s.prompt_tokens, 1, 1 << 20, "tokens of the prompt");
  options.Flag("verify", &s.verify, "only decode");
  options.Number("bound", &s.bound, 0, 1e6,
                 "relative error that fails; 0: 2e-5 on CPUs, 1e-4 on GPUs, 6e-2 with --fast, 0.15 with --int8, 0.5 with --mxfp8");
  options.Unsigned("seed", &s.seed, "of the prompt and of synthetic weights");
  options.Flag("json", &s.json, "one JSON object");
  s.model.DeclareDevice(&options);
  s.model.DeclareTiers(&options);
  s.model.DeclareResident(&options);
  s.model.DeclareTarget(&options);
  options.Section("Synthetic checkpoint");
  s.geometry.Declare(&options);
  options.Choice("format", FormatNames(), &s.format, "of its weights");
  if (const auto code = options.Parse(arguments)) return *code;
  if (!s.model.model.empty() &&
      (options.given("preset") || options.given("like") || options.given("format"))) {
    return options.Usage(
        "--preset, --like and --format are for a synthetic checkpoint, without --model");
  }
  const Status resolved = s.model.Resolve();
  if (!resolved.ok()) return options.Usage(resolved.message());
  const StatusOr<int> code = Decode(&s);
  return code.ok() ? *code : Fail("model-decode", code.status());
}

}  // namespace mainarch::cli
