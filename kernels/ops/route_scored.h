// SPDX-License-Identifier: MIT
//
// A router whose choice is not that of its logits alone: sigmoids, biases, corrections, groups, a factor.
// In a kernel of its own, so that plain routers (Route) stay as short as they are.
#ifndef MAINARCH_KERNELS_OPS_ROUTE_SCORED_H_
#define MAINARCH_KERNELS_OPS_ROUTE_SCORED_H_

#include "kernels/common/kernel.h"
#include "kernels/experts_args.h"
#include "kernels/ops/choose.h"
#include "kernels/ops/splits.h"
#include "kernels/ops/tiles.h"

namespace mainarch::kernels {

// A wave a row; a lane holds neighbouring experts, so that of equal ones the lowest lane has the lowest.
struct RouteScored {
  using Args = RouteScoredArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kHeld = kRouterMaxExperts / kWave;
  static_assert(kRouterMaxGroups <= kWave);

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t rows = StepView(args.route.step).rows();
    for (uint32_t row = worker * kWaves + WaveId(); row < rows; row += workers * kWaves) {
      OneRow(ReadArgumentsAgain<Args>(), row);
    }
  }

 private:
  DEVICE static uint32_t Expert(uint32_t j) { return LaneId() * kHeld + j; }

  DEVICE static void OneRow(const Args& args, uint32_t row) {
    const RouteArgs& route = args.route;
    const RowFactor factor(route.norm, row, true);
    const float by = factor.Value(route.norm);
    const Global<const float> logits = At(route.router.logits) + uint64_t{row} * route.stride;
    const uint64_t split_stride = uint64_t{route.split_rows} * route.stride;
    float p[kHeld];
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t e = Min(Expert(j), route.router.experts - 1);
      p[j] = SumSplits(logits + e, route.splits, split_stride) * by;
      if (args.bias.address != 0) p[j] += At(args.bias)[e];
    }
    ToShares(args, p);
    uint32_t orders[kHeld];
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t e = Min(Expert(j), route.router.experts - 1);
      const float choice = args.correction.address != 0 ? p[j] + At(args.correction)[e] : p[j];
      orders[j] = Expert(j) < route.router.experts ? OrderOf(NanIsLast(choice)) : 0;
    }
    if (args.chosen_groups < args.groups) DropGroups(args, orders);
    Choose(args, row, p, orders);
    if (route.shared != 0 && LaneId() == 0) {
      const float gate = SumSplits(logits + route.router.experts, route.splits, split_stride) * by;
      const uint64_t last = uint64_t{row} * (route.router.top + 1) + route.router.top;
      At(route.router.ids)[last] = route.router.experts;
      At(route.router.weights)[last] = 1.0f / (1.0f + Exp(-gate));
    }
  }

  // p: the softmax of all logits, or the sigmoid of each.
  DEVICE static void ToShares(const Args& args, float (&p)[kHeld]) {
    if (args.sigmoid != 0) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) p[j] = 1.0f / (1.0f + Exp(-p[j]));
      return;
    }
    float largest = -__builtin_inff(), sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) largest = __builtin_fmaxf(largest, NanIsLast(p[j]));
    largest = WaveMax(largest);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      p[j] = Exp(NanIsLast(p[j]) - largest);
      sum += Expert(j) < args.route.router.experts ? p[j] : 0.0f;
    }
    sum = WaveSum(sum);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) p[j] /= sum;
  }

  // Lane g has group g's score. Experts of groups that lose come behind all others.
  DEVICE static void DropGroups(const Args& args, uint32_t (&orders)[kHeld]) {
    const uint32_t size = args.route.router.experts / args.groups;
    float score = 0;
    for (uint32_t g = 0; g < args.groups; ++g) {
      const float both = TwoBest(orders, g * size, size);
      score = LaneId() == g ? both : score;
    }
    uint32_t better = 0;
    for (uint32_t g = 0; g < args.groups; ++g) {
      const float other = ReadLane(score, g);
      better += other > score || (other == score && g < LaneId());
    }
    const uint64_t stay = Ballot(LaneId() < args.groups && better < args.chosen_groups);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const bool lost = (stay >> (Expert(j) / size % kWave) & 1) == 0;
      if (lost && orders[j] != 0) orders[j] = OrderOf(-__builtin_inff());
    }
  }

  DEVICE static float TwoBest(const uint32_t (&orders)[kHeld], uint32_t begin, uint32_t size) {
    uint32_t first = 0, second = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t own = Expert(j) - begin < size ? orders[j] : 0;
      second = own > first ? first : (own > second ? own : second);
      first = own > first ? own : first;
    }
    const uint32_t best = WaveMax(first);
    const auto lane = static_cast<uint32_t>(__builtin_ctzll(Ballot(first == best)));
    const uint32_t next = WaveMax(LaneId() == lane ? second : first);
    return FromOrder(best) + FromOrder(next);
  }

  DEVICE static void Choose(const Args& args, uint32_t row, const float (&p)[kHeld],
                            const uint32_t (&orders)[kHeld]) {
    const RouterArgs& router = args.route.router;
    SortedScores<kHeld> left(orders);
    // Lane s keeps the answer of turn s.
    uint32_t index = ~0u;
    float mine = 0;
#pragma clang loop unroll(disable)
    for (uint32_t turn = 0; turn < router.top; ++turn) {
      const uint32_t best = WaveMax(left.Largest());
      const auto lane = static_cast<uint32_t>(__builtin_ctzll(Ballot(left.Largest() == best)));
      const uint32_t place = left.PlaceOfLargest(lane);
      left.Take(LaneId() == lane);
      float weight = 0;
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) weight = place == j ? p[j] : weight;
      weight = ReadLane(weight, lane);
      mine = LaneId() == turn ? weight : mine;
      index = LaneId() == turn ? lane * kHeld + place : index;
    }
    float sum = 0;
    uint32_t slot = 0;  // how many of the chosen come before mine
    for (uint32_t turn = 0; turn < router.top; ++turn) {
      sum += ReadLane(mine, turn);
      slot += ReadLane(index, turn) < index;
    }
    if (LaneId() >= router.top) return;
    const uint64_t at = uint64_t{row} * (router.top + args.route.shared) + slot;
    At(router.ids)[at] = index;
    At(router.weights)[at] = (router.renormalise != 0 ? mine / sum : mine) * args.scale;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ROUTE_SCORED_H_
