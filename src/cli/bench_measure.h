// SPDX-License-Identifier: MIT
//
// Repetitions of prefill and decode between probes, and the time of every operator of a step.
#ifndef MAINARCH_CLI_BENCH_MEASURE_H_
#define MAINARCH_CLI_BENCH_MEASURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cli/bench_probe.h"
#include "model/model.h"

namespace mainarch::cli {

struct Repetition {
  double seconds = 0;
  double exact_seconds = 0;  // of the same just before or after, with fp32 activations; 0: not asked for
  ReadProbe before, after;
  // Threads moved, or the bandwidth did, or others had the processors: it says nothing.
  bool mixed() const;
  double ReadRate() const { return (before.all + after.all) / 2; }
};

struct Case {
  bool prefill = false;
  int64_t tokens = 0;  // of the prompt, or decoded by each sequence in a repetition
  int64_t depth = 0;   // tokens of context before the first one decoded
  int64_t batch = 1;
  int64_t chunk = 0;  // of a prefill
  std::string Name() const;
};

struct Measured {
  Case what;
  std::vector<Repetition> repetitions;
  // Medians over the repetitions that are not mixed; over all when all are.
  int kept = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  uint64_t bytes_per_token = 0;  // weights and KV
  uint64_t flops_per_token = 0;
  double bytes_per_second = 0;
  double read_share = 0;  // of the probe around each repetition
  double flops_per_second = 0;
  double of_exact = 0;  // speed as a multiple of exact arithmetic's, the median of pairs
  std::string regime;  // "near", "far", "alone", or "mixed" when none was kept
};

struct BenchSettings {
  backend::KvType kv = backend::KvType::kBF16;
  backend::Activations activations = backend::Activations::kF32;
  int repetitions = 5;
  bool beside_exact = false;  // each repetition with fp32 activations too, in turns
};

StatusOr<Measured> Measure(const std::shared_ptr<const model::Model>& model, const Case& what,
                           const BenchSettings& settings, Probes* probes);

// Operators of equal name and weight, in whatever layer, together.
struct OpTime {
  std::string name;  // "norm_matmul layers.*.qkv"
  uint32_t count = 0;
  double seconds = 0;
  uint64_t bytes = 0, flops = 0;
};
struct OpTimes {
  std::vector<OpTime> ops;  // in the order of the program
  double step_seconds = 0;  // of the whole step, by itself
  double read_rate = 0;     // of the probes around
};
// The time of operator i is that of the first i + 1 operators less that of the first i.
StatusOr<OpTimes> MeasureOps(const std::shared_ptr<const model::Model>& model, const Case& what,
                             const BenchSettings& settings, Probes* probes);

double Median(std::vector<double> values);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_BENCH_MEASURE_H_
