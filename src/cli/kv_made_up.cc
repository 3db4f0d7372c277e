// SPDX-License-Identifier: MIT
#include "cli/kv_made_up.h"

#include <cmath>
#include <numeric>
#include <random>

#include "cli/kv_loss.h"

namespace mainarch::cli {
namespace {

using Vector = std::vector<double>;

// The large ones, in pairs of RoPE that turn fast and slowly.
constexpr size_t kLarge[] = {5, 37, 70, 101};
constexpr double kOffset = 8;

void Rotate(size_t position, Vector* head) {
  const size_t half = head->size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(1e6, -static_cast<double>(i) / static_cast<double>(half));
    const double c = std::cos(angle), s = std::sin(angle), a = (*head)[i], b = (*head)[i + half];
    (*head)[i] = a * c - b * s;
    (*head)[i + half] = b * c + a * s;
  }
}

std::vector<double> ScoresOf(const Vector& q, const std::vector<Vector>& keys) {
  std::vector<double> scores;
  for (const Vector& k : keys) {
    scores.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0) /
                     std::sqrt(static_cast<double>(q.size())));
  }
  return scores;
}
// What makes the first token's weight a third.
double SinkOf(const std::vector<double>& scores) {
  double others = 0;
  for (size_t t = 1; t < scores.size(); ++t) others += std::exp(scores[t]);
  return std::log(others / 2) - scores[0];
}
Vector OutputOf(const std::vector<double>& logs, const std::vector<Vector>& values) {
  Vector out(values[0].size(), 0.0);
  for (size_t t = 0; t < values.size(); ++t) {
    const double weight = std::exp(logs[t]);
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * values[t][d];
  }
  return out;
}

}  // namespace

MadeUpAttention::MadeUpAttention() {
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal;
  Vector offset(kDim, 0.0);
  for (const size_t c : kLarge) offset[c] = c % 2 == 0 ? -kOffset : kOffset;
  for (size_t t = 0; t < kTokens; ++t) {
    Vector k = offset, v(kDim);
    for (double& x : k) x += normal(random);
    for (double& x : v) x = normal(random) * (t == 0 ? 0.05 : 1);
    Rotate(t, &k);
    keys_.push_back(std::move(k));
    values_.push_back(std::move(v));
  }
  for (size_t i = 0; i < kQueries; ++i) {
    Vector q(kDim);
    for (double& x : q) x = normal(random) * 2;
    for (const size_t c : kLarge) q[c] *= 0.1;  // or the offsets would decide alone
    Rotate(kTokens - 1, &q);
    queries_.push_back(std::move(q));
  }
}

MadeUpAttention::Loss MadeUpAttention::Measure(const KvVariant& variant) const {
  std::vector<Vector> keys = keys_, values = values_;
  for (size_t t = 0; t < kTokens; ++t) {
    const bool eight = t < variant.first || t + variant.last >= kTokens;
    (eight ? KvRounder(RoundToFp8) : variant.k)(absl::MakeSpan(keys[t]));
    (eight ? KvRounder(RoundToFp8) : variant.v)(absl::MakeSpan(values[t]));
  }
  Loss out;
  for (const Vector& q : queries_) {
    std::vector<double> exact = ScoresOf(q, keys_), got = ScoresOf(q, keys);
    const double sink = SinkOf(exact);
    exact[0] += sink;
    got[0] += sink;
    const auto exact_logs = LogSoftmax<double>(exact), got_logs = LogSoftmax<double>(got);
    out.kl += KullbackLeibler(exact_logs, got_logs) / kQueries;
    const Vector want = OutputOf(exact_logs, values_), have = OutputOf(got_logs, values);
    double off = 0, size = 0;
    for (size_t d = 0; d < kDim; ++d) off += std::pow(have[d] - want[d], 2), size += want[d] * want[d];
    out.output += std::sqrt(off / size) / kQueries;
  }
  return out;
}

}  // namespace mainarch::cli
