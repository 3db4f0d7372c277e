// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/common/philox.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool Before(const std::vector<double>& score, uint32_t a, uint32_t b) {
  return score[a] != score[b] ? score[a] > score[b] : a < b;
}

// `ties`: logits from a set of four values, so that the rule for ties decides.
Case RouterCase(uint32_t rows, uint32_t experts, uint32_t top, bool renormalise, bool ties) {
  Random random(experts + top + ties);
  std::vector<float> logits = random.Floats(size_t{rows} * experts, 2);
  if (ties) {
    for (float& x : logits) x = static_cast<float>(random.Next() % 4);
    logits[1] = kNan;
  }
  std::vector<uint32_t> ids;
  std::vector<double> weights;
  for (uint32_t row = 0; row < rows; ++row) {
    std::vector<double> score;
    for (uint32_t e = 0; e < experts; ++e) {
      const float x = logits[row * experts + e];
      score.push_back(std::isnan(x) ? -INFINITY : x);
    }
    std::vector<uint32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return Before(score, a, b); });
    const double largest = score[order[0]];
    double sum = 0;
    for (uint32_t i = 0; i < (renormalise ? top : experts); ++i) {
      sum += std::exp(score[order[i]] - largest);
    }
    std::sort(order.begin(), order.begin() + top);
    for (uint32_t i = 0; i < top; ++i) {
      ids.push_back(order[i]);
      weights.push_back(std::exp(score[order[i]] - largest) / sum);
    }
  }
  Case out;
  out.name = absl::StrCat("router ", rows, " x ", experts, " top ", top,
                          renormalise ? " renormalised" : "", ties ? " with ties and a NaN" : "");
  out.bound = "ids exact; weights 4e-6 relative: exp in fp32 of up to 15, and a sum";
  out.buffers = {{"logits", ToBytes(logits)},
                 {"ids", Bytes(ids.size() * 4, 0xee)},
                 {"weights", Bytes(ids.size() * 4, 0xee)}};
  out.steps = {{MakeLaunch<RouterArgs>("router", 2, [=](RouterArgs& args, const Addresses& at) {
    args.logits = at.Of<const float>("logits");
    args.ids = at.Of<uint32_t>("ids");
    args.weights = at.Of<float>("weights");
    args.rows = rows;
    args.experts = experts;
    args.top = top;
    args.renormalise = renormalise;
  })}};
  out.expectations = {ExactlyValues("ids", ids), NearFloat("weights", weights, {1e-37, 4e-6})};
  return out;
}

struct PickShape {
  uint32_t rows, n, parts, first_index;
};

// The score of every index, in double: the logit, or with a temperature its Gumbel-perturbed form.
std::vector<double> Scores(const std::vector<float>& logits, uint32_t row, const PickShape& s,
                           float temperature, uint64_t seed, uint64_t position) {
  std::vector<double> out;
  for (uint32_t i = 0; i < s.n; ++i) {
    double score = logits[size_t{row} * s.n + i];
    if (std::isnan(score)) score = -INFINITY;
    if (temperature > 0) {
      const double v =
          (SampleWord(seed, position, /*stream=*/0, s.first_index + i) + 0.5) * 0x1p-32;
      score = score / temperature - std::log(-std::log1p(-v));
    }
    out.push_back(score);
  }
  return out;
}

Case PickCase(const std::string& what, const PickShape& s, std::vector<float> logits,
              float temperature, double margin) {
  const uint64_t seed = 0x123456789abcdef0;
  std::vector<uint64_t> positions;
  for (uint32_t row = 0; row < s.rows; ++row) positions.push_back((uint64_t{row} << 33) + 7 * row);
  std::vector<std::vector<double>> scores;
  for (uint32_t row = 0; row < s.rows; ++row) {
    scores.push_back(Scores(logits, row, s, temperature, seed, positions[row]));
  }
  // The answer must be the best in double; with noise, one within `margin` of it is as good.
  const auto check = [=](absl::Span<const uint8_t> bytes) -> std::string {
    const std::vector<uint32_t> ids = FromBytes<uint32_t>(bytes);
    for (uint32_t row = 0; row < s.rows; ++row) {
      uint32_t best = 0;
      for (uint32_t i = 1; i < s.n; ++i) {
        if (Before(scores[row], i, best)) best = i;
      }
      const uint32_t got = ids[row] - s.first_index;
      if (got == best) continue;
      if (margin > 0 && got < s.n && scores[row][got] >= scores[row][best] - margin) continue;
      return absl::StrCat("row ", row, " chose ", ids[row], ", expected ", best + s.first_index);
    }
    return "";
  };
  Case out;
  out.name = absl::StrCat(what, " ", s.rows, " x ", s.n, " in ", s.parts, " parts");
  out.bound = margin > 0 ? "a score within 1e-4 of the best in double" : "exact";
  out.buffers = {{"logits", ToBytes(logits)},
                 {"positions", ToBytes(positions)},
                 {"parts", Bytes(s.rows * s.parts * 8, 0xee)},
                 {"ids", Bytes(s.rows * 4, 0xee)}};
  const auto pick = [=](PickArgs& args, const Addresses& at) {
    args.logits = at.Of<const float>("logits");
    args.positions = at.Of<const uint64_t>("positions");
    args.parts = at.Of<ScoredWords>("parts");
    args.seed = seed;
    args.rows = s.rows;
    args.n = s.n;
    args.part_count = s.parts;
    args.temperature = temperature;
    args.first_index = s.first_index;
  };
  const auto merge = [=](PickMergeArgs& args, const Addresses& at) {
    args.parts = at.Of<const ScoredWords>("parts");
    args.ids = at.Of<uint32_t>("ids");
    args.rows = s.rows;
    args.part_count = s.parts;
  };
  out.steps = {{MakeLaunch<PickArgs>("pick", 3, pick)},
               {MakeLaunch<PickMergeArgs>("pick_merge", 1, merge)}};
  out.expectations = {{"ids", check}};
  return out;
}

Case TiesCase() {
  const PickShape s = {4, 1030, 5, 1000};
  std::vector<float> logits(size_t{s.rows} * s.n, -3.0f);
  logits[700] = logits[130] = logits[131] = 2.0f;  // row 0: 130
  logits[s.n + 5] = kNan;                          // row 1: all equal but a NaN: 0
  for (uint32_t i = 0; i < s.n; ++i) logits[2 * s.n + i] = -INFINITY;  // row 2: 0
  for (uint32_t i = 0; i < s.n; ++i) logits[3 * s.n + i] = kNan;       // row 3: 0
  return PickCase("argmax with ties, NaN, -inf", s, logits, 0, 0);
}

}  // namespace

std::vector<Case> ChooseCases() {
  const PickShape small = {3, 1000, 1, 0}, shard = {2, 5003, 7, 40000};
  return {
      RouterCase(5, 128, 8, true, false),
      RouterCase(9, 512, 10, true, false),
      RouterCase(3, 128, 8, false, false),
      RouterCase(6, 128, 8, true, true),
      RouterCase(1, 5, 5, true, false),
      RouterCase(2, 32, 1, false, false),
      PickCase("argmax", small, Random(1).Floats(3000, 3), 0, 0),
      PickCase("argmax of a shard", shard, Random(2).Floats(2 * 5003, 3), 0, 0),
      TiesCase(),
      PickCase("sample", small, Random(3).Floats(3000, 3), 0.8f, 1e-4),
      PickCase("sample of a shard", shard, Random(4).Floats(2 * 5003, 2), 1.3f, 1e-4),
  };
}

}  // namespace mainarch::kernels_test
