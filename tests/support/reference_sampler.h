// SPDX-License-Identifier: MIT
//
// Sampling as models.md §5.4 words it: whole-vocabulary sorts, doubles, no cleverness. Only the
// random numbers are the library's own.
#ifndef MAINARCH_TESTS_SUPPORT_REFERENCE_SAMPLER_H_
#define MAINARCH_TESTS_SUPPORT_REFERENCE_SAMPLER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "decode/options.h"
#include "decode/philox.h"

namespace mainarch::test {

struct ReferenceSampler {
  const decode::SequenceOptions& options;
  std::vector<uint32_t> prompt;  // tokens not sampled
  std::vector<uint32_t> output;  // tokens sampled
  std::vector<uint32_t> banned;

  std::vector<float> Edited(std::vector<float> l) const {
    for (uint32_t t : banned) l[t] = -INFINITY;
    for (const decode::LogitBias& b : options.logit_bias) l[b.token] += b.bias;
    std::map<uint32_t, int> counts;
    for (uint32_t t : prompt) counts[t] += 0;
    for (uint32_t t : output) counts[t] += 1;
    const float r = options.repetition_penalty == 0 ? 1 : options.repetition_penalty;
    for (auto [t, n] : counts) {
      l[t] = l[t] > 0 ? l[t] / r : l[t] * r;
      if (n == 0) continue;
      l[t] -= static_cast<float>(n) * options.frequency_penalty;
      l[t] -= options.presence_penalty;
    }
    return l;
  }

  // Kept tokens, ascending, and their weights.
  std::vector<std::pair<uint32_t, double>> Kept(const std::vector<float>& raw) const {
    const std::vector<float> l = Edited(raw);
    const uint32_t best = static_cast<uint32_t>(std::max_element(l.begin(), l.end()) - l.begin());
    if (options.temperature < 1e-5f) return {{best, 1.0}};
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < l.size(); ++i) {
      if (l[i] > -INFINITY) ids.push_back(i);
    }
    const auto score = [&](uint32_t i) { return double((l[i] - l[best]) / options.temperature); };
    const auto weight = [&](uint32_t i) { return std::exp(score(i)); };
    std::erase_if(ids, [&](uint32_t i) { return weight(i) < double(options.min_p); });
    // Best first; of equals the lowest id first.
    std::stable_sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) { return l[a] > l[b]; });
    if (options.top_k > 0 && ids.size() > options.top_k) {
      const float kth = l[ids[options.top_k - 1]];
      std::erase_if(ids, [&](uint32_t i) { return l[i] < kth; });
    }
    if (options.top_p > 0 && options.top_p < 1) {
      double total = 0;
      for (size_t i = ids.size(); i-- > 0;) total += weight(ids[i]);
      double sum = 0;
      while (ids.size() > 1) {
        sum += weight(ids.back());
        if (sum > double(1.0f - options.top_p) * total) break;
        ids.pop_back();
      }
    }
    std::sort(ids.begin(), ids.end());
    std::vector<std::pair<uint32_t, double>> kept;
    for (uint32_t i : ids) kept.emplace_back(i, weight(i));
    return kept;
  }

  uint32_t Sample(const std::vector<float>& raw, uint64_t position) const {
    const auto kept = Kept(raw);
    double best = -1;
    uint32_t winner = kept[0].first;
    for (auto [id, weight] : kept) {
      const auto block =
          decode::RandomBlock(options.seed, position, id / 4, decode::Stream::kSample);
      const double u = (block[id % 4] + 0.5) / 4294967296.0;
      const double race = weight / -std::log(u);
      if (race > best) {
        best = race;
        winner = id;
      }
    }
    return winner;
  }
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_REFERENCE_SAMPLER_H_
