// SPDX-License-Identifier: MIT
//
// Ops that choose: top-k router, argmax and sampling. Ties go to the lowest index, NaN counts as
// minus infinity, so that every answer is an index that exists.
#ifndef MAINARCH_KERNELS_OPS_CHOOSE_H_
#define MAINARCH_KERNELS_OPS_CHOOSE_H_

#include "kernels/common/draw.h"
#include "kernels/common/math.h"
#include "kernels/common/philox.h"
#include "kernels/experts_args.h"
#include "kernels/ops/splits.h"
#include "kernels/ops/told.h"
#include "prims.h"

namespace mainarch::kernels {

DEVICE float NanIsLast(float x) { return x == x ? x : -__builtin_inff(); }

// A lane's scores, of which it knows the order: the largest first, of equal ones the lower place first. What
// is taken, or was never there, is 0.
template <uint32_t kHeld>
class SortedScores {
 public:
  static_assert(kHeld <= 8);

  // A network of neighbours, which change places only if the second is larger: equal ones never do.
  DEVICE explicit SortedScores(const uint32_t (&orders)[kHeld]) {
    uint32_t place[kHeld];
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      order_[j] = orders[j];
      place[j] = j;
    }
#pragma clang loop unroll(full)
    for (uint32_t round = 0; round < kHeld; ++round) {
#pragma clang loop unroll(full)
      for (uint32_t j = round % 2; j + 1 < kHeld; j += 2) {
        const bool swap = order_[j + 1] > order_[j];
        const uint32_t low = order_[j + 1] > order_[j] ? order_[j] : order_[j + 1];
        order_[j] = order_[j + 1] > order_[j] ? order_[j + 1] : order_[j];
        order_[j + 1] = low;
        const uint32_t first = place[j];
        place[j] = swap ? place[j + 1] : first;
        place[j + 1] = swap ? first : place[j + 1];
      }
    }
    places_ = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) places_ |= place[j] << (4 * j);
  }
  DEVICE uint32_t Largest() const { return order_[0]; }
  DEVICE uint32_t PlaceOfLargest(uint32_t lane) const { return ReadLane(places_, lane) & 15; }
  DEVICE void Take(bool mine) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j + 1 < kHeld; ++j) order_[j] = mine ? order_[j + 1] : order_[j];
    order_[kHeld - 1] = mine ? 0 : order_[kHeld - 1];
    places_ >>= mine ? 4 : 0;
  }

 private:
  uint32_t order_[kHeld];
  uint32_t places_;  // four bits each
};

// A wave a row: of n experts a lane holds neighbouring ones, so that of equal ones the lowest lane has the
// lowest.
struct Router {
  using Args = RouterArgs;
  static constexpr uint32_t kLdsBytes = 0;

  // Choices of a row to memory, a row behind the other.
  DEVICE static auto Into(const Args& args, uint32_t row, uint32_t slots) {
    const Global<uint32_t> ids = At(args.ids) + uint64_t{row} * slots;
    const Global<float> weights = At(args.weights) + uint64_t{row} * slots;
    return [=](uint32_t slot, uint32_t id, float weight) {
      ids[slot] = id;
      weights[slot] = weight;
    };
  }

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    for (uint32_t row = worker * kWaves + WaveId(); row < args.rows; row += workers * kWaves) {
      const Global<const float> logits = At(args.logits) + uint64_t{row} * args.experts;
      ForHeld(args, [&]<uint32_t kHeld>() {
        Vec<float, kHeld> held;
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kHeld; ++j) {
          held[j] = logits[Min(LaneId() * kHeld + j, args.experts - 1)];
        }
        Choose<kHeld>(args, false, held, 0.0f, Into(args, row, args.top));
      });
    }
  }

  // Of a row of logits whose elements are sums of `splits` numbers, each `split_stride` elements behind the
  // one before; both strides are multiples of kPadColumns. They are multiplied by what `factor` gives once
  // they are asked for. `shared`: one more logit and one more slot, for the expert that every row has.
  // put(slot, id, weight) gets each choice, in one lane. `told`: instead of logits, of kToldExperts at most.
  template <class Factor, class Put>
  DEVICE static void OneRow(const Args& args, uint32_t row, uint32_t stride, bool shared,
                            uint32_t splits, uint64_t split_stride, Factor factor, Put put,
                            const ToldSums* told = nullptr) {
    const Global<const float> logits = At(args.logits) + uint64_t{row} * stride;
    ForHeld(args, [&]<uint32_t kHeld>() {
      using Held = Vec<float, kHeld>;
      const uint32_t lane = LaneId() * kHeld < args.experts ? LaneId() : 0;
      Held held;
      float gate = 0;
      if (kHeld <= kFewHeld && told != nullptr) {
        held = told->template Await<kHeld>(row, lane * kHeld, splits);
        if (shared) gate = told->template Await<1>(row, args.experts, splits)[0];
      } else {
        held = SumSplits(reinterpret_cast<Global<const Held>>(logits) + lane, splits,
                         split_stride / kHeld);
        if (shared) gate = SumSplits(logits + args.experts, splits, split_stride);
      }
      const float by = factor();
      Choose<kHeld>(args, shared, held * by, gate * by, put);
    });
  }

 private:
  static constexpr uint32_t kFewHeld = 2;  // most models' experts, and a quarter of the work
  static_assert(kFewHeld * kWave == kToldExperts);
  template <class Body>
  DEVICE static void ForHeld(const Args& args, Body body) {
    if (args.experts <= kFewHeld * kWave) {
      body.template operator()<kFewHeld>();
    } else {
      body.template operator()<kRouterMaxExperts / kWave>();
    }
  }

  // Each turn finds the largest that is left: what is looked at is one number a lane.
  template <uint32_t kHeld, class Put>
  DEVICE static void Choose(const Args& args, bool shared, Vec<float, kHeld> held, float gate,
                            Put put) {
    uint32_t orders[kHeld];
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const float score = held[j];
      orders[j] = LaneId() * kHeld + j < args.experts ? OrderOf(NanIsLast(score)) : 0;
    }
    SortedScores<kHeld> left(orders);
    // Lane s keeps the answer of turn s.
    uint32_t order = 0, index = ~0u;
#pragma clang loop unroll(disable)
    for (uint32_t turn = 0; turn < args.top; ++turn) {
      const uint32_t best = WaveMax(left.Largest());
      const auto lane = static_cast<uint32_t>(__builtin_ctzll(Ballot(left.Largest() == best)));
      const uint32_t place = lane * kHeld + left.PlaceOfLargest(lane);
      left.Take(LaneId() == lane);
      order = LaneId() == turn ? best : order;
      index = LaneId() == turn ? place : index;
    }
    const float largest = FromOrder(ReadLane(order, 0));
    const float mine = Exp(FromOrder(order) - largest);  // of lanes below args.top
    float sum = 0;
    uint32_t slot = 0;  // how many of the chosen come before mine
    for (uint32_t turn = 0; turn < args.top; ++turn) {
      sum += ReadLane(mine, turn);
      slot += ReadLane(index, turn) < index;
    }
    if (!args.renormalise) sum = SumOfAll(orders, largest);
    if (LaneId() < args.top) put(slot, index, mine / sum);
    if (shared && LaneId() == 0) put(args.top, args.experts, 1.0f / (1.0f + Exp(-gate)));
  }

  template <uint32_t kHeld>
  DEVICE static float SumOfAll(const uint32_t (&orders)[kHeld], float largest) {
    float sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      sum += orders[j] == 0 ? 0.0f : Exp(FromOrder(orders[j]) - largest);
    }
    return WaveSum(sum);
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
