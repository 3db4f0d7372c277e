// SPDX-License-Identifier: MIT
//
// How far a distribution of tokens is from another: logarithms of probabilities, in nats.
#ifndef MAINARCH_CLI_KV_LOSS_H_
#define MAINARCH_CLI_KV_LOSS_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/types/span.h"

namespace mainarch::cli {

template <class T>
std::vector<double> LogSoftmax(absl::Span<const T> logits) {
  double largest = -INFINITY, sum = 0;
  for (T logit : logits) largest = std::max(largest, double{logit});
  for (T logit : logits) sum += std::exp(double{logit} - largest);
  std::vector<double> out;
  out.reserve(logits.size());
  for (T logit : logits) out.push_back(double{logit} - largest - std::log(sum));
  return out;
}

// Of q from p.
inline double KullbackLeibler(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

inline size_t TopOf(const std::vector<double>& logs) {
  return static_cast<size_t>(std::max_element(logs.begin(), logs.end()) - logs.begin());
}

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_KV_LOSS_H_
