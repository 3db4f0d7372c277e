// SPDX-License-Identifier: MIT
//
// Ops that choose: top-k router, argmax and sampling. Ties go to the lowest index, NaN counts as
// minus infinity, so that every answer is an index that exists.
#ifndef MAINARCH_KERNELS_OPS_CHOOSE_H_
#define MAINARCH_KERNELS_OPS_CHOOSE_H_

#include "kernels/common/math.h"
#include "kernels/common/philox.h"
#include "kernels/ops/splits.h"
#include "prims.h"

namespace mainarch::kernels {

DEVICE float NanIsLast(float x) { return x == x ? x : -__builtin_inff(); }

// A wave a row: lane l holds experts l, l + 64, ...
struct Router {
  using Args = RouterArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    for (uint32_t row = worker * kWaves + WaveId(); row < args.rows; row += workers * kWaves) {
      OneRow(args, row, args.experts, false, 1, 0, 1.0f);
    }
  }

  // `stride` of a row of logits, in elements; a logit is the sum of `splits` numbers, each
  // `split_stride` elements behind the one before. They are
  // multiplied by `factor`. `shared`: one more logit and one more slot, for the expert that every row
  // has.
  DEVICE static void OneRow(const Args& args, uint32_t row, uint32_t stride, bool shared,
                            uint32_t splits, uint64_t split_stride, float factor) {
    constexpr uint32_t kFew = 2;  // most models' experts, and a quarter of the work
    if (args.experts <= kFew * kWave) {
      Choose<kFew>(args, row, stride, shared, splits, split_stride, factor);
    } else {
      Choose<kRouterMaxExperts / kWave>(args, row, stride, shared, splits, split_stride, factor);
    }
  }

  // A lane holds kHeld experts.
  template <uint32_t kHeld>
  DEVICE static void Choose(const Args& args, uint32_t row, uint32_t stride, bool shared,
                            uint32_t splits, uint64_t split_stride, float factor) {
    const Global<const float> logits = At(args.logits) + uint64_t{row} * stride;
    Scored held[kHeld];
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t expert = j * kWave + LaneId();
      held[j] = kNobody;
      if (expert < args.experts) {
        const float logit = SumSplits(logits + expert, splits, split_stride) * factor;
        held[j] = {NanIsLast(logit), expert};
      }
    }
    float all = 0;  // this lane's part of the sum over all experts
    const float largest = WaveMax(Largest(held));
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) all += Exp(held[j].score - largest);
    // Lane s keeps the answer of turn s.
    Scored mine = kNobody;
    float chosen = 0;
    for (uint32_t turn = 0; turn < args.top; ++turn) {
      Scored best = held[0];
#pragma clang loop unroll(full)
      for (uint32_t j = 1; j < kHeld; ++j) best = Better(best, held[j]);
      best = WaveBest(best);
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) {
        if (held[j].index == best.index) held[j] = kNobody;
      }
      chosen += Exp(best.score - largest);
      if (LaneId() == turn) mine = best;
    }
    const float sum = args.renormalise ? chosen : WaveSum(all);
    uint32_t slot = 0;  // how many of the chosen come before mine
    for (uint32_t turn = 0; turn < args.top; ++turn)
      slot += ReadLane(mine.index, turn) < mine.index;
    const uint64_t first = uint64_t{row} * (args.top + shared);
    if (LaneId() < args.top) {
      At(args.ids)[first + slot] = mine.index;
      At(args.weights)[first + slot] = Exp(mine.score - largest) / sum;
    }
    if (shared && LaneId() == 0) {
      const float gate = SumSplits(logits + args.experts, splits, split_stride) * factor;
      At(args.ids)[first + args.top] = args.experts;
      At(args.weights)[first + args.top] = 1.0f / (1.0f + Exp(-gate));
    }
  }

  template <uint32_t kHeld>
  DEVICE static float Largest(const Scored (&held)[kHeld]) {
    float largest = held[0].score;
#pragma clang loop unroll(full)
    for (uint32_t j = 1; j < kHeld; ++j) largest = __builtin_fmaxf(largest, held[j].score);
    return largest;
  }
};

// -log(-log(u)) with u = 1 - v, v = (word + 0.5) / 2^32: a draw from Gumbel's distribution. The
// large ones decide, and they come from small v, so -log(1 - v) is taken by its series there.
DEVICE float Gumbel(uint32_t word) {
  const float v = Fma(static_cast<float>(word), 0x1p-32f, 0x1p-33f);
  const float series =
      v * Fma(v, Fma(v, Fma(v, Fma(v, 1.0f / 5, 1.0f / 4), 1.0f / 3), 1.0f / 2), 1.0f);
  const float exponential = v < 0x1p-6f ? series : -Log(1.0f - v);
  return -Log(exponential);
}

// One workgroup a (row, part).
struct Pick {
  using Args = PickArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 8;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    for (uint32_t unit = worker; unit < args.rows * args.part_count; unit += workers) {
      const uint32_t row = unit / args.part_count, part = unit % args.part_count;
      const uint32_t begin = static_cast<uint32_t>(uint64_t{part} * args.n / args.part_count);
      const uint32_t end = static_cast<uint32_t>(uint64_t{part + 1} * args.n / args.part_count);
      const Scored best = GroupBest<kWaves>(Best(args, row, begin, end), arena.Get<uint32_t>());
      if (ThreadId() == 0) {
        const Global<uint32_t> out = reinterpret_cast<Global<uint32_t>>(At(args.parts) + unit);
        out[0] = BitCast<uint32_t>(best.score);
        out[1] = best.index;
      }
    }
  }

  DEVICE static Scored Best(const Args& args, uint32_t row, uint32_t begin, uint32_t end) {
    const Global<const float> logits = At(args.logits) + uint64_t{row} * args.n;
    const bool sampling = args.temperature > 0;
    const float inverse = sampling ? 1.0f / args.temperature : 1.0f;
    const uint64_t position = sampling ? At(args.positions)[row] : 0;
    Scored best = kNobody;
    for (uint32_t i = begin + ThreadId(); i < end; i += kThreads) {
      const uint32_t index = args.first_index + i;
      float score = NanIsLast(logits[i]);
      if (sampling) {
        score = Fma(score, inverse, Gumbel(SampleWord(args.seed, position, args.stream, index)));
      }
      best = Better(best, {NanIsLast(score), index});
    }
    return best;
  }
};

// A wave a row. Parts may come from several GPUs: their order does not matter.
struct PickMerge {
  using Args = PickMergeArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    for (uint32_t row = worker * kWaves + WaveId(); row < args.rows; row += workers * kWaves) {
      const Global<const uint32_t> parts = reinterpret_cast<Global<const uint32_t>>(
          At(args.parts) + uint64_t{row} * args.part_count);
      Scored best = kNobody;
      for (uint32_t i = LaneId(); i < args.part_count; i += kWave) {
        best = Better(best, {BitCast<float>(+parts[2 * i]), parts[2 * i + 1]});
      }
      best = WaveBest(best);
      if (LaneId() == 0) At(args.ids)[row] = best.index;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_CHOOSE_H_
