// SPDX-License-Identifier: MIT
//
// The decoder's routers: route, which goes by a softmax of logits, and route_scored, by more rules.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/experts_args.h"
#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {

using namespace kernels;

namespace {

// What a router of more rules has beside its size.
struct Rules {
  bool sigmoid = false, bias = false, correction = false, renormalise = false;
  uint32_t groups = 1, chosen_groups = 1;
  float scale = 1;
  bool ties = false;
};

// By `score`, the best first; of equals the lower place first.
std::vector<uint32_t> Ranked(const std::vector<double>& score) {
  std::vector<uint32_t> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return score[a] > score[b]; });
  return order;
}

// Scores of the groups that lose become less than any other.
void DropGroups(const Rules& rules, std::vector<double>* choice) {
  const size_t size = choice->size() / rules.groups;
  std::vector<double> sums;
  for (uint32_t g = 0; g < rules.groups; ++g) {
    std::vector<double> own(choice->begin() + g * size, choice->begin() + (g + 1) * size);
    std::sort(own.begin(), own.end(), std::greater<double>());
    sums.push_back(own[0] + own[1]);
  }
  const std::vector<uint32_t> order = Ranked(sums);
  for (uint32_t i = rules.chosen_groups; i < rules.groups; ++i) {
    std::fill_n(choice->begin() + order[i] * size, size, -INFINITY);
  }
}

// The size of a router's case. `splits`: each logit is the sum of so many.
struct RouteShape {
  uint32_t rows, experts, top;
  bool shared = false;
  uint32_t splits = 1;
  uint32_t stride() const { return RoundUp(experts + 1, kPadColumns); }
};

// What both kernels read and should write.
struct Routed {
  // Columns beyond the experts would win if they were looked at.
  explicit Routed(const RouteShape& s)
      : shape(s), logits(size_t{s.rows} * s.stride(), 100.0f), weights(s.rows + 1, s.top + s.shared) {}

  float* Row(uint32_t row) { return &logits[size_t{row} * shape.stride()]; }
  void Want(uint32_t row, uint32_t slot, uint32_t id, double weight) {
    ids.push_back(id);
    weights.Set(row, slot, weight, weight * 4e-6);
  }
  // The expert of all tokens, where there is one.
  void WantShared(uint32_t row, Random* random) {
    if (!shape.shared) return;
    float& gate = Row(row)[shape.experts];
    gate = static_cast<float>(3 * random->Normal());
    Want(row, shape.top, shape.experts, 1 / (1 + std::exp(-double{gate})));
  }

  // The case but for its name and its launch.
  Case Make() const {
    std::vector<uint32_t> all_ids = ids;
    all_ids.resize(ids.size() + shape.top + shape.shared, 0xeeeeeeee);
    // Sums of halves, quarters and eighths are exact; and so is the norm's factor, a half.
    std::vector<float> parts;
    for (uint32_t i = 0; i < shape.splits; ++i) {
      for (const float logit : logits) parts.push_back(logit / static_cast<float>(shape.splits) * 2);
    }
    Case out;
    out.bound = "ids exact; weights 4e-6 relative: exp in fp32 of up to 15, and a sum";
    out.buffers = {{"step", StepPlan::Of(shape.rows).Block()},
                   {"logits", ToBytes(parts)},
                   {"squares", ToBytes(std::vector<float>(shape.rows, 4.0f))},
                   {"ids", Bytes(all_ids.size() * 4, kUntouchedByte)},
                   weights.ToFill("weights")};
    out.expectations = {ExactlyValues("ids", all_ids), weights.Check("weights")};
    return out;
  }

  RouteShape shape;
  std::vector<float> logits;
  std::vector<uint32_t> ids;
  Wanted weights;
};

void SetRoute(const RouteShape& s, bool renormalise, const Addresses& at, RouteArgs* args) {
  args->step = at.Of<const uint32_t>("step");
  args->router.logits = at.Of<const float>("logits");
  args->router.ids = at.Of<uint32_t>("ids");
  args->router.weights = at.Of<float>("weights");
  args->router.experts = s.experts;
  args->router.top = s.top;
  args->router.renormalise = renormalise;
  args->stride = s.stride();
  args->shared = s.shared;
  args->splits = s.splits;
  args->split_rows = s.rows;
  args->norm.squares = at.Of<const float>("squares");
  args->norm.chunks = 1;
  args->norm.inverse_hidden = 1;
}

// `ties`: logits out of four values.
Case RouteCase(const RouteShape& s, bool renormalise, bool ties) {
  Random random(s.experts + s.rows);
  Routed routed(s);
  for (uint32_t row = 0; row < s.rows; ++row) {
    float* own = routed.Row(row);
    for (uint32_t e = 0; e < s.experts; ++e) {
      own[e] =
          ties ? static_cast<float>(random.Next() % 4) : static_cast<float>(2 * random.Normal());
    }
    std::vector<uint32_t> order = Ranked({own, own + s.experts});
    double sum = 0;
    for (uint32_t i = 0; i < (renormalise ? s.top : s.experts); ++i) sum += std::exp(double{own[order[i]]});
    std::sort(order.begin(), order.begin() + s.top);
    for (uint32_t i = 0; i < s.top; ++i) {
      routed.Want(row, i, order[i], std::exp(double{own[order[i]]}) / sum);
    }
    routed.WantShared(row, &random);
  }
  Case out = routed.Make();
  out.name = absl::StrCat("route ", s.rows, " x ", s.experts, " top ", s.top,
                          renormalise ? " renormalised" : "", ties ? " with ties" : "",
                          s.shared ? ", one shared" : "",
                          s.splits > 1 ? absl::StrCat(", sums of ", s.splits) : "");
  out.steps = {{MakeLaunch<RouteArgs>("route", 2, [=](RouteArgs& args, const Addresses& at) {
    SetRoute(s, renormalise, at, &args);
  })}};
  return out;
}

// With ties, numbers out of few that neither sigmoids nor sums round apart: then no bound decides.
Case RouteScoredCase(const RouteShape& s, const Rules& rules) {
  Random random(s.experts + s.rows + s.top);
  const auto draw = [&] {
    return rules.ties ? static_cast<float>(random.Next() % 4)
                      : static_cast<float>(2 * random.Normal());
  };
  Routed routed(s);
  std::vector<float> bias(s.experts), correction(s.experts);
  for (float& b : bias) b = draw();
  for (float& c : correction) c = rules.ties ? 0.0f : draw() / 8;
  for (uint32_t row = 0; row < s.rows; ++row) {
    float* own = routed.Row(row);
    std::vector<double> p(s.experts);
    double all = 0;
    for (uint32_t e = 0; e < s.experts; ++e) {
      own[e] = draw();
      p[e] = double{own[e]} + (rules.bias ? double{bias[e]} : 0);
      p[e] = rules.sigmoid ? 1 / (1 + std::exp(-p[e])) : std::exp(p[e]);
      all += p[e];
    }
    std::vector<double> choice;
    for (uint32_t e = 0; e < s.experts; ++e) {
      if (!rules.sigmoid) p[e] /= all;
      choice.push_back(p[e] + (rules.correction ? double{correction[e]} : 0));
    }
    if (rules.chosen_groups < rules.groups) DropGroups(rules, &choice);
    std::vector<uint32_t> order = Ranked(choice);
    std::sort(order.begin(), order.begin() + s.top);
    double sum = 0;
    for (uint32_t i = 0; i < s.top; ++i) sum += p[order[i]];
    for (uint32_t i = 0; i < s.top; ++i) {
      routed.Want(row, i, order[i],
                  p[order[i]] / (rules.renormalise ? sum : 1) * static_cast<double>(rules.scale));
    }
    routed.WantShared(row, &random);
  }
  Case out = routed.Make();
  out.name = absl::StrCat(
      "route_scored ", s.rows, " x ", s.experts, " top ", s.top,
      rules.sigmoid ? " sigmoid" : " softmax", rules.bias ? ", bias" : "",
      rules.correction ? ", corrected" : "", rules.renormalise ? ", renormalised" : "",
      rules.ties ? ", ties" : "", s.shared ? ", one shared" : "", ", ", rules.chosen_groups, " of ",
      rules.groups, " groups, times ", rules.scale, ", sums of ", s.splits);
  out.buffers.push_back({"bias", ToBytes(bias)});
  out.buffers.push_back({"correction", ToBytes(correction)});
  out.steps = {
      {MakeLaunch<RouteScoredArgs>("route_scored", 2, [=](RouteScoredArgs& args, const Addresses& at) {
        SetRoute(s, rules.renormalise, at, &args.route);
        if (rules.bias) args.bias = at.Of<const float>("bias");
        if (rules.correction) args.correction = at.Of<const float>("correction");
        args.sigmoid = rules.sigmoid;
        args.groups = rules.groups;
        args.chosen_groups = rules.chosen_groups;
        args.scale = rules.scale;
      })}};
  return out;
}

}  // namespace

std::vector<Case> DecoderRouteCases() {
  return {
      RouteCase({1, 8, 2}, true, false),
      RouteCase({9, 128, 8}, true, false),
      RouteCase({9, 130, 8}, false, false),
      RouteCase({17, 512, 16}, true, true),
      RouteCase({9, 512, 10, true}, true, false),
      RouteCase({3, 128, 8, false, 2}, true, false),
      RouteCase({1, 130, 8, true, 8}, false, true),
      RouteScoredCase({9, 256, 8}, {true, false, true, true, 8, 4, 2.5f}),
      RouteScoredCase({5, 512, 16, false, 4}, {true, false, true, false, 1, 1, 1.7f}),
      RouteScoredCase({3, 32, 4}, {false, true, false, true}),
      RouteScoredCase({5, 130, 6}, {false, true, true, false, 1, 1, 0.5f}),
      RouteScoredCase({17, 128, 8}, {true, false, false, true, 8, 3, 1, true}),
      RouteScoredCase({9, 128, 2, false, 2}, {false, false, false, false, 64, 1, 16}),
      RouteScoredCase({6, 90, 7, false, 2}, {false, false, true, true, 6, 2, 3}),
      RouteScoredCase({2, 6, 3, true}, {true, true, false, true, 3, 2, 1}),
  };
}

}  // namespace mainarch::kernels_test
