// SPDX-License-Identifier: MIT
#include "cli/bench_measure.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "cli/bench_steps.h"
#include "cli/step_cost.h"

namespace mainarch::cli {
namespace {

// Two probes of the same state of the machine differ by 2 %, those of different ones by 80 %. What
// lies between was disturbed.
constexpr double kSameRate = 1.06;
constexpr int kOpRepetitions = 3;  // of every prefix of the program, per repetition asked for

double SecondsSince(int64_t ns) { return static_cast<double>(NowNs() - ns) * 1e-9; }

StatusOr<std::unique_ptr<StepDriver>> Prepare(const std::shared_ptr<const model::Model>& model,
                                              const Case& what, const BenchSettings& settings) {
  StepDriver::Shape shape;
  shape.activations = settings.activations;
  shape.batch = static_cast<uint32_t>(what.batch);
  if (what.prefill) {
    shape.tokens = static_cast<uint32_t>(what.tokens);
    shape.max_rows = static_cast<uint32_t>(std::min(what.chunk, what.tokens));
  } else {
    shape.tokens = static_cast<uint32_t>(what.depth + what.tokens + 1);
  }
  ASSIGN_OR_RETURN(auto driver, StepDriver::Create(model, shape, settings.kv));
  RETURN_IF_ERROR(driver->FillContext(static_cast<uint32_t>(what.depth)));
  return driver;
}

// Seconds that it took.
StatusOr<double> TimeOnce(const Case& what, StepDriver* driver) {
  const int64_t start = NowNs();
  if (what.prefill) {
    RETURN_IF_ERROR(driver->Prefill(static_cast<uint32_t>(what.tokens)));
  } else {
    for (int64_t i = 0; i < what.tokens; ++i) {
      RETURN_IF_ERROR(driver->Decode(static_cast<uint32_t>(what.depth + i)));
    }
  }
  return SecondsSince(start);
}

// Bytes and flops of all that TimeOnce runs.
backend::Cost CostOfCase(const backend::Program& program, const Case& what, backend::KvType kv) {
  if (what.prefill) return PrefillCost(program, what.tokens, what.chunk, kv);
  backend::Cost sum;
  for (int64_t i = 0; i < what.tokens; ++i) {
    const backend::Cost step = StepCost(program, what.batch, what.depth + i, kv);
    sum.weight_bytes += step.weight_bytes;
    sum.kv_bytes += step.kv_bytes;
    sum.flops += step.flops;
  }
  return sum;
}

void Summarize(const backend::Cost& cost, Measured* out) {
  std::vector<double> seconds, shares, of_exact;
  const bool any = std::any_of(out->repetitions.begin(), out->repetitions.end(),
                               [](const Repetition& r) { return !r.mixed(); });
  const double bytes = static_cast<double>(cost.weight_bytes + cost.kv_bytes);
  for (const Repetition& r : out->repetitions) {
    if (any && r.mixed()) continue;
    seconds.push_back(r.seconds);
    shares.push_back(bytes / r.seconds / r.ReadRate());
    of_exact.push_back(r.exact_seconds / r.seconds);
    out->regime = any ? NameOf(r.before.regime) : "mixed";
  }
  out->kept = any ? static_cast<int>(seconds.size()) : 0;
  // The same regime throughout, or not one: then say so.
  for (const Repetition& r : out->repetitions) {
    if (any && !r.mixed() && NameOf(r.before.regime) != out->regime) out->regime = "near and far";
  }
  out->seconds = Median(seconds);
  out->read_share = Median(shares);
  out->of_exact = Median(of_exact);
  const uint64_t tokens = static_cast<uint64_t>(out->what.tokens * out->what.batch);
  out->tokens_per_second = static_cast<double>(tokens) / out->seconds;
  out->bytes_per_token = (cost.weight_bytes + cost.kv_bytes) / tokens;
  out->flops_per_token = cost.flops / tokens;
  out->bytes_per_second = bytes / out->seconds;
  out->flops_per_second = static_cast<double>(cost.flops) / out->seconds;
}

// The weight that an operator multiplies by, or -1.
struct WeightOf {
  template <class Op>
  backend::WeightId operator()(const Op& op) const {
    if constexpr (requires { op.w; }) return op.w;
    if constexpr (requires { op.table; }) return op.table;
    return -1;
  }
};

std::string Label(const backend::Program& program, const backend::Op& op) {
  std::string name(backend::OpName(op));
  const backend::WeightId id = std::visit(WeightOf{}, op);
  if (id < 0) return name;
  name += ' ';
  bool in_number = false;
  for (const char c : program.weights[static_cast<size_t>(id)].label) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      if (!in_number) name += '*';
      in_number = true;
    } else {
      name += c;
      in_number = false;
    }
  }
  return name;
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool Repetition::mixed() const {
  const double ratio = before.all / after.all;
  return before.regime != after.regime || before.regime == Regime::kBusy || ratio > kSameRate ||
         ratio < 1 / kSameRate;
}

std::string Case::Name() const {
  if (prefill) return absl::StrCat("prefill ", tokens);
  return absl::StrCat("decode @", depth);
}

StatusOr<Measured> Measure(const std::shared_ptr<const model::Model>& model, const Case& what,
                           const BenchSettings& settings, Probes* probes) {
  Measured out;
  out.what = what;
  ASSIGN_OR_RETURN(auto driver, Prepare(model, what, settings));
  RETURN_IF_ERROR(TimeOnce(what, driver.get()).status());  // first touches of memory, clocks
  std::unique_ptr<StepDriver> exact;
  if (settings.beside_exact) {
    BenchSettings plain = settings;
    plain.activations = backend::Activations::kF32;
    ASSIGN_OR_RETURN(exact, Prepare(model, what, plain));
    RETURN_IF_ERROR(TimeOnce(what, exact.get()).status());
  }
  for (int i = 0; i < settings.repetitions; ++i) {
    Repetition r;
    const bool exact_first = i % 2 == 0;  // whatever slows down or speeds up meanwhile, each meets as often
    if (exact != nullptr && exact_first) {
      ASSIGN_OR_RETURN(r.exact_seconds, TimeOnce(what, exact.get()));
    }
    r.before = probes->Quick();
    ASSIGN_OR_RETURN(r.seconds, TimeOnce(what, driver.get()));
    r.after = probes->Quick();
    if (exact != nullptr && !exact_first) {
      ASSIGN_OR_RETURN(r.exact_seconds, TimeOnce(what, exact.get()));
    }
    out.repetitions.push_back(r);
  }
  Summarize(CostOfCase(model->weights().program(), what, settings.kv), &out);
  return out;
}

StatusOr<OpTimes> MeasureOps(const std::shared_ptr<const model::Model>& model, const Case& what,
                             const BenchSettings& settings, Probes* probes) {
  const backend::Program& program = model->weights().program();
  ASSIGN_OR_RETURN(auto driver, Prepare(model, what, settings));
  const uint32_t position = static_cast<uint32_t>(what.depth);
  const size_t count = program.ops.size();
  std::vector<double> prefix(count, INFINITY);  // the least seen; interruptions only add
  double whole = INFINITY;
  const int repetitions = settings.repetitions * kOpRepetitions;
  OpTimes out;
  const double before = probes->Quick().all;
  for (int r = 0; r < repetitions; ++r) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t start = NowNs();
      RETURN_IF_ERROR(driver->DecodePrefix(position, i + 1));
      prefix[i] = std::min(prefix[i], SecondsSince(start));
    }
    const int64_t start = NowNs();
    RETURN_IF_ERROR(driver->Decode(position));
    whole = std::min(whole, SecondsSince(start));
  }
  out.read_rate = (before + probes->Quick().all) / 2;
  out.step_seconds = whole;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = Label(program, program.ops[i]);
    auto same = std::find_if(out.ops.begin(), out.ops.end(),
                             [&](const OpTime& op) { return op.name == name; });
    if (same == out.ops.end()) {
      out.ops.push_back({name});
      same = out.ops.end() - 1;
    }
    const backend::Cost cost = OpCost(program, program.ops[i], what.batch, what.depth, settings.kv);
    ++same->count;
    same->seconds += prefix[i] - (i == 0 ? 0 : prefix[i - 1]);
    same->bytes += cost.weight_bytes + cost.kv_bytes;
    same->flops += cost.flops;
  }
  return out;
}

}  // namespace mainarch::cli
