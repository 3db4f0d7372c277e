// SPDX-License-Identifier: MIT
//
// mainarch bench: prefill and decode beside what the machine can do at that moment.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/bench_measure.h"
#include "cli/bench_probe.h"
#include "cli/command.h"
#include "cli/geometry.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace mainarch::cli {
namespace {

struct Settings {
  ModelOptions model;
  GeometryOptions geometry{""};
  std::string format = "bf16", only = "both";
  std::vector<int64_t> prefill = {512}, depths = {0, 8192}, batches = {1};
  int64_t tokens = 4, chunk = 256, repetitions = 9, probe_mb = 0;
  uint64_t seed = 1;
  std::optional<double> of_exact;
  bool ops = false, json = false;
};

struct Report {
  std::string checkpoint;
  std::shared_ptr<const model::Model> model;
  PeakProbe peak;
  ReadProbe read;  // the first one
  uint64_t probe_bytes = 0;
  std::vector<Measured> cases;
  std::vector<std::string> notes;
  OpTimes ops;
  std::string ops_case;
};

void Declare(Settings* s, Options* options) {
  s->model.DeclareModel(options, "checkpoint directory");
  options->Section("Cases");
  options->Integers("prefill", &s->prefill, 1, 1 << 24, "prompt lengths");
  options->Integers("decode", &s->depths, 0, 1 << 24,
                    "tokens of context before the first decoded one");
  options->Integers("batch", &s->batches, 1, 4096, "sequences that decode together");
  options->Choice("only", {"both", "prefill", "decode"}, &s->only, "leave the other out");
  options->Integer("tokens", &s->tokens, 1, 1 << 20, "decoded by each sequence in a repetition");
  options->Integer("chunk", &s->chunk, 1, 1 << 16, "rows of a prefill step");
  options->Integer("repetitions", &s->repetitions, 1, 1000, "of each case; figures are medians");
  options->Integer("probe-mb", &s->probe_mb, 0, 1 << 20,
                   "memory that a read probe reads; 0: 1074, or more where caches are larger");
  options->Number("beside-exact", &s->of_exact, 0, 1000,
                  "with --fast, --int8 or --mxfp8: run each case with fp32 activations in turns, print the ratio, and fail where it "
                  "is below this");
  options->Flag("ops", &s->ops, "time every operator of the last decode case");
  options->Flag("json", &s->json, "one JSON object");
  s->model.DeclareDevice(options);
  s->model.DeclareTarget(options);
  options->Section("Synthetic checkpoint, in place of --model");
  s->geometry.Declare(options);
  options->Choice("format", FormatNames(), &s->format, "of its weights");
  options->Unsigned("seed", &s->seed, "of its weights");
}

// The cases asked for; those of the defaults that the model is too short for are left out.
StatusOr<std::vector<Case>> Cases(const Settings& s, const Options& options,
                                  const model::ModelConfig& config, Report* report) {
  std::vector<Case> cases;
  const auto add = [&](const Case& c, bool asked) {
    const int64_t need = c.prefill ? c.tokens : c.depth + c.tokens + 1;
    if (need <= config.max_position) {
      cases.push_back(c);
    } else if (asked) {
      return Error(Code::kInvalidArgument, c.Name(), " needs ", need, " positions, the model has ",
                   config.max_position);
    } else {
      report->notes.push_back(
          absl::StrCat(c.Name(), " left out: the model has ", config.max_position, " positions"));
    }
    return OkStatus();
  };
  if (s.only != "decode") {
    for (const int64_t tokens : s.prefill) {
      Case c;
      c.prefill = true;
      c.tokens = tokens;
      c.chunk = s.chunk;
      RETURN_IF_ERROR(add(c, options.given("prefill")));
    }
  }
  if (s.only == "prefill") return cases;
  for (const int64_t depth : s.depths) {
    for (const int64_t batch : s.batches) {
      Case c;
      c.tokens = s.tokens;
      c.depth = depth;
      c.batch = batch;
      RETURN_IF_ERROR(add(c, options.given("decode")));
    }
  }
  return cases;
}

std::string Rate(double bytes_per_second) { return Fixed(bytes_per_second * 1e-9, 1); }

// A share of what could not be measured is none.
std::string Share(double value, double of) { return of > 0 ? Percent(value / of) : "-"; }

void PrintProbes(const Report& r, int threads) {
  Table table({"<probe", "1 thread", absl::StrCat(threads, " threads"), "<"});
  table.Row({"read, huge pages", Rate(r.read.one), Rate(r.read.all), "GB/s"});
  table.Row({"read, 4 KB pages", Rate(r.read.one_small), Rate(r.read.all_small), "GB/s"});
  table.Row({"fp32 multiply-add", "", Rate(r.peak.fp32_fma), "GFLOP/s"});
  if (r.peak.bf16_dot > 0) table.Row({"bf16 dot product", "", Rate(r.peak.bf16_dot), "GFLOP/s"});
  table.Print();
  std::printf("reads of %s", Bytes(r.probe_bytes).c_str());
  if (r.read.regime == Regime::kBusy) {
    std::printf("; other programs keep the threads from running together: busy");
  } else if (r.read.regime != Regime::kAlone) {
    std::printf("; a cache line goes from thread to thread in %s ns: %s",
                Fixed(r.read.handoff_ns, 0).c_str(), NameOf(r.read.regime));
  }
  std::printf("\n\n");
}

void PrintCases(const Report& r, bool beside_exact) {
  const bool bf16 = r.peak.bf16_dot > 0;
  std::vector<std::string> headings = {"<case", "batch",   "tok/s",   "time/step", "MB/token",
                                       "GB/s",  "of read", "GFLOP/s", "of fp32"};
  if (bf16) headings.push_back("of bf16");
  if (beside_exact) headings.push_back("x exact");
  headings.insert(headings.end(), {"kept", "<threads"});
  Table table(std::move(headings));
  for (const Measured& m : r.cases) {
    const double steps =
        m.what.prefill
            ? std::ceil(static_cast<double>(m.what.tokens) / static_cast<double>(m.what.chunk))
            : static_cast<double>(m.what.tokens);
    std::vector<std::string> row = {m.what.Name(),
                                    absl::StrCat(m.what.batch),
                                    Fixed(m.tokens_per_second, 1),
                                    Seconds(m.seconds / steps),
                                    Fixed(static_cast<double>(m.bytes_per_token) * 1e-6, 2),
                                    Rate(m.bytes_per_second),
                                    Percent(m.read_share),
                                    Rate(m.flops_per_second),
                                    Share(m.flops_per_second, r.peak.fp32_fma)};
    if (bf16) row.push_back(Share(m.flops_per_second, r.peak.bf16_dot));
    if (beside_exact) row.push_back(Fixed(m.of_exact, 2));
    row.push_back(absl::StrCat(m.kept, "/", m.repetitions.size()));
    row.push_back(m.regime);
    table.Row(std::move(row));
  }
  table.Print();
}

void PrintOps(const Report& r) {
  double sum = 0;
  for (const OpTime& op : r.ops.ops) sum += op.seconds;
  Table table({"<operator", "count", "time", "share", "MB", "GB/s", "of read", "MFLOP", "GFLOP/s"});
  for (const OpTime& op : r.ops.ops) {
    const double rate = op.seconds > 0 ? static_cast<double>(op.bytes) / op.seconds : NAN;
    const double flops = op.seconds > 0 ? static_cast<double>(op.flops) / op.seconds : NAN;
    table.Row({op.name, absl::StrCat(op.count), Seconds(op.seconds), Percent(op.seconds / sum),
               Fixed(static_cast<double>(op.bytes) * 1e-6, 3), Rate(rate),
               Percent(rate / r.ops.read_rate), Fixed(static_cast<double>(op.flops) * 1e-6, 2),
               Rate(flops)});
  }
  std::printf("\noperators of one step of %s\n", r.ops_case.c_str());
  table.Print();
  std::printf(
      "sum %s, the whole step %s; an operator's time is that of the program up to and with it\n"
      "less that of the program before it, each the least of several\n",
      Seconds(sum).c_str(), Seconds(r.ops.step_seconds).c_str());
}

void PrintReport(const Settings& s, const Report& r, int threads) {
  std::printf("%s\n%s\n%s, KV %s%s, %d threads, %s; weights in memory %s\n\n", r.checkpoint.c_str(),
              Describe(r.model->config()).c_str(), s.model.device.c_str(), s.model.kv.c_str(),
              s.model.rounding_text(), threads, r.model->backend().devices()[0].isa.c_str(),
              Bytes(r.model->weights().weight_bytes()).c_str());
  PrintProbes(r, threads);
  PrintCases(r, s.of_exact.has_value());
  if (s.ops && !r.ops.ops.empty()) PrintOps(r);
  std::printf(
      "\nBytes are weights as stored (of experts, at most those that the batch can use) and KV.\n"
      "Sampling is not included. Context is made by copying one computed page. Repetitions in "
      "which\n"
      "the threads moved or the read bandwidth changed are dropped; \"of read\" is of the "
      "bandwidth\n"
      "of %d threads and huge pages just before and after.\n",
      threads);
  for (const std::string& note : r.notes) std::printf("note: %s\n", note.c_str());
}

void WriteProbe(const ReadProbe& p, JsonWriter* out) {
  out->BeginObject().Field("read_1", p.one).Field("read_n", p.all);
  out->Field("read_1_small_pages", p.one_small).Field("read_n_small_pages", p.all_small);
  out->Field("handoff_ns", p.handoff_ns).Field("regime", NameOf(p.regime)).EndObject();
}

void WriteCase(const Settings& s, const Measured& m, const PeakProbe& peak, JsonWriter* out) {
  out->BeginObject().Field("case", m.what.prefill ? "prefill" : "decode");
  out->Field("tokens", m.what.tokens).Field("context", m.what.depth).Field("batch", m.what.batch);
  out->Field("tokens_per_second", m.tokens_per_second).Field("seconds", m.seconds);
  out->Field("bytes_per_token", m.bytes_per_token).Field("flops_per_token", m.flops_per_token);
  out->Field("bytes_per_second", m.bytes_per_second).Field("read_share", m.read_share);
  out->Field("flops_per_second", m.flops_per_second);
  out->Field("fp32_share", m.flops_per_second / peak.fp32_fma);
  out->Field("bf16_share", peak.bf16_dot > 0 ? m.flops_per_second / peak.bf16_dot : NAN);
  if (s.of_exact) out->Field("of_exact", m.of_exact);
  out->Field("kept", m.kept).Field("regime", m.regime);
  out->Key("repetitions").BeginArray();
  for (const Repetition& r : m.repetitions) {
    out->BeginObject().Field("seconds", r.seconds).Field("mixed", r.mixed());
    if (s.of_exact) out->Field("exact_seconds", r.exact_seconds);
    out->Key("before");
    WriteProbe(r.before, out);
    out->Key("after");
    WriteProbe(r.after, out);
    out->EndObject();
  }
  out->EndArray().EndObject();
}

void PrintJson(const Settings& s, const Report& r, int threads) {
  JsonWriter out;
  out.BeginObject().Field("checkpoint", r.checkpoint).Field("model", Describe(r.model->config()));
  out.Field("device", s.model.device).Field("kv", s.model.kv).Field("fast", s.model.fast).Field("int8", s.model.int8).Field("mxfp8", s.model.mxfp8);
  const backend::LoadedModel& weights = r.model->weights();
  out.Field("threads", threads).Field("cpu", r.model->backend().devices()[0].name);
  out.Field("weight_bytes", weights.weight_bytes()).Field("huge_bytes", weights.huge_bytes());
  out.Field("isa", r.model->backend().devices()[0].isa).Field("probe_bytes", r.probe_bytes);
  out.Key("probe");
  WriteProbe(r.read, &out);
  out.Field("fp32_flops", r.peak.fp32_fma).Field("bf16_flops", r.peak.bf16_dot);
  out.Key("cases").BeginArray();
  for (const Measured& m : r.cases) WriteCase(s, m, r.peak, &out);
  out.EndArray();
  out.Field("interrupted", Interrupted());
  if (s.ops) {
    out.Key("ops").BeginObject().Field("case", r.ops_case);
    out.Field("step_seconds", r.ops.step_seconds).Field("read_rate", r.ops.read_rate);
    out.Key("operators").BeginArray();
    for (const OpTime& op : r.ops.ops) {
      out.BeginObject().Field("name", op.name).Field("count", op.count);
      out.Field("seconds", op.seconds)
          .Field("bytes", op.bytes)
          .Field("flops", op.flops)
          .EndObject();
    }
    out.EndArray().EndObject();
  }
  out.List("notes", r.notes).EndObject().Print();
}

// The first case that is slower than asked for, for a person.
Status FastEnough(const Settings& s, const Report& r) {
  if (!s.of_exact) return OkStatus();
  for (const Measured& m : r.cases) {
    if (m.of_exact >= *s.of_exact) continue;
    return Error(Code::kUnsupported, m.what.Name(), ", batch ", m.what.batch, s.model.rounding_text(), ", on ",
                 r.model->backend().devices()[0].isa, ": ", Fixed(m.of_exact, 3), " x exact, asked for ", *s.of_exact);
  }
  return OkStatus();
}

StatusOr<int> Bench(Settings* s, const Options& options) {
  Report report;
  std::unique_ptr<TemporaryDirectory> temporary;
  std::string directory = s->model.model;
  report.checkpoint = directory;
  if (directory.empty()) {
    ASSIGN_OR_RETURN(const model::ModelConfig config, s->geometry.Resolve());
    ASSIGN_OR_RETURN(temporary, MakeTemporaryCheckpoint(
                                    config, *model::SyntheticFormatFromName(s->format), s->seed));
    directory = temporary->path();
    report.checkpoint = absl::StrCat(
        "synthetic ", s->geometry.like().empty() ? s->geometry.preset() : s->geometry.like(), " ",
        s->format);
  }
  ASSIGN_OR_RETURN(report.model, LoadModel(s->model, directory));
  ASSIGN_OR_RETURN(const std::vector<Case> cases,
                   Cases(*s, options, report.model->config(), &report));
  const int threads = static_cast<int>(report.model->backend().devices()[0].compute_units);
  const uint64_t bytes = s->probe_mb > 0
                             ? static_cast<uint64_t>(s->probe_mb) * 1'000'000 / 1024 * 1024
                             : DefaultProbeBytes();
  ASSIGN_OR_RETURN(auto probes, Probes::Create(threads, bytes));
  report.probe_bytes = probes->bytes();
  report.read = probes->Read();
  report.peak = probes->Peak();
  BenchSettings settings;
  settings.kv = s->model.kv_type();
  settings.activations = s->model.activations();
  settings.repetitions = static_cast<int>(s->repetitions);
  settings.beside_exact = s->of_exact.has_value();
  Progress progress("measuring", Progress::Unit::kItems);
  for (const Case& what : cases) {
    progress.Update(report.cases.size(), cases.size());
    StatusOr<Measured> measured = Measure(report.model, what, settings, probes.get());
    if (Interrupted()) break;  // what its last repetition says is worth nothing
    RETURN_IF_ERROR(measured.status());
    report.cases.push_back(*std::move(measured));
  }
  if (s->ops && !cases.empty() && !cases.back().prefill && !Interrupted()) {
    StatusOr<OpTimes> ops = MeasureOps(report.model, cases.back(), settings, probes.get());
    if (!Interrupted()) {
      RETURN_IF_ERROR(ops.status());
      report.ops = *std::move(ops);
      report.ops_case = absl::StrCat(cases.back().Name(), ", batch ", cases.back().batch);
    }
  }
  progress.Clear();
  if (Interrupted()) {
    report.notes.push_back(absl::StrCat("interrupted: ", report.cases.size(), " of ", cases.size(),
                                        " cases were measured"));
  }
  s->json ? PrintJson(*s, report, threads) : PrintReport(*s, report, threads);
  if (Interrupted()) return FailInterrupted("bench");
  RETURN_IF_ERROR(FastEnough(*s, report));
  return kExitOk;
}

}  // namespace

int RunBench(Arguments arguments) {
  Settings s;
  Options options("bench", "--model DIR | --preset NAME [options]",
                  "Measures prefill and decode, and beside them what the machine can do: bandwidth "
                  "of plain reads "
                  "with one thread and all, peak rate of multiply-adds, in the same process before "
                  "and after each "
                  "repetition. Run it on a machine that does nothing else.",
                  "mainarch bench --preset qwen3-0.6b --prefill 512 --decode 0,8192\n"
                  "mainarch bench --preset moe-64x --format mxfp4 --batch 1,8 --only decode\n"
                  "mainarch bench --model DIR --threads 1 --ops");
  Declare(&s, &options);
  if (const auto code = options.Parse(arguments)) return *code;
  const bool synthetic = options.given("preset") || options.given("like");
  if (s.model.model.empty() == !synthetic) return options.Usage("give --model, --preset or --like");
  if (s.ops && s.only == "prefill") return options.Usage("--ops needs a decode case");
  if (s.of_exact && !s.model.rounds()) return options.Usage("--beside-exact needs --fast, --int8 or --mxfp8");
  const Status resolved = s.model.Resolve();
  if (!resolved.ok()) return options.Usage(resolved.message());
  if (s.model.is_virtual()) {
    return options.Usage(
        "bench measures time, and that of a virtual node says nothing about hardware: model-decode "
        "and gpu-allreduce-bench print what can be counted there");
  }
  const StatusOr<int> code = Bench(&s, options);
  return code.ok() ? *code : Fail("bench", code.status());
}

}  // namespace mainarch::cli
