// SPDX-License-Identifier: MIT
//
// The LM head's choice: edits (bans, bias, penalties), argmax, or top-k, min-p, top-p and a draw,
// over a vocabulary that lies in shares on the ranks. The tokens are those of the CPU's sampler
// (src/decode/sampler.h), not nearly but always: both are made of kernels/common/draw.h, where
// nothing depends on an order of additions.
//
// Argument and data flow: ChooseArgs. A greedy step takes one round over the fabric and 16 bytes a
// chunk, a row drawn with a small top_k some hundred more, and both one launch (ops/choose_share.h). Here are
// those of rows with other filters, whose logits the owner has whole.
#ifndef MAINARCH_KERNELS_OPS_SAMPLE_H_
#define MAINARCH_KERNELS_OPS_SAMPLE_H_

#include "kernels/choice_args.h"
#include "kernels/common/draw.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// What the ops share: who owns a row, and where its things lie in the owner's memory.
struct ChoicePlaces {
  const ChooseArgs& args;

  DEVICE uint32_t owner(uint32_t row) const { return row % args.ranks; }
  DEVICE uint32_t slot(uint32_t row) const { return row / args.ranks; }
  DEVICE uint32_t units() const { return args.ranks * args.chunks; }  // of a slot
  DEVICE Global<float> Values(uint32_t row) const {
    return At(args.values[owner(row)]) + uint64_t{slot(row)} * args.vocab_stride;
  }
  DEVICE Global<uint64_t> Found(uint32_t row, uint32_t unit) const {
    return At(args.found[owner(row)]) + (slot(row) * units() + unit) * kFoundWords;
  }
  // Each parity of the step has its own flags, so that the lowest bit is free: with it set, no flag
  // looks like the zeros at the start (Reduce::FlagOf).
  DEVICE Global<uint32_t> Flag(uint32_t row, uint32_t unit, uint32_t index) const {
    return At(args.flags[owner(row)]) + ((index & 1) * args.slots + slot(row)) * units() + unit;
  }
  DEVICE static uint32_t FlagOf(uint32_t index) { return index | 1; }

  // Where a row of step `index` is in what lies twice.
  DEVICE uint32_t Place(uint32_t row, uint32_t index) const {
    return Parity(index) * args.max_rows + row;
  }
  // One lane: the row's token, or kNoToken, to the host and to every GPU.
  DEVICE void Choose(uint32_t row, uint32_t index, uint32_t token) const {
    const uint32_t at = Place(row, index);
    for (uint32_t r = 0; r < args.ranks; ++r) TellToken(At(args.tokens[r]) + at, index, token);
    if (token == kNoToken) return;
    At(args.results)[at].token = token;
    At(args.results)[at].chosen = 1;
  }
};

// Until all logits of a row that is drawn and this rank's own have come.
DEVICE void AwaitShares(const ChooseArgs& args, uint32_t row, uint32_t index) {
  const ChoicePlaces places = {args};
  for (uint32_t u = ThreadId(); u < places.units(); u += kThreads) {
    WaitFlag<Scope::kSystem, Until::kEqual>(places.Flag(row, u, index), places.FlagOf(index));
  }
  Barrier();
  FenceAcquire<Scope::kSystem>();
}

// Who takes part in a draw, found by radix selection on an order of 32 bits in digits of 11, 11 and
// 10, the masses of equal digits added up in LDS (integers: any order will do).
struct Selection {
  uint32_t order;  // of whoever is first not to be dropped
  uint64_t below;  // mass of the lower orders
  uint64_t limit;  // of what is dropped
};
struct Selector {
  static constexpr uint32_t kBins = 2048;
  static constexpr uint32_t kSumsAt = kBins * 8, kTopsAt = kSumsAt + kThreads * 8;
  static constexpr uint32_t kLdsBytes = kTopsAt + 16 * 8;

  Arena arena;

  // Candidates 0 to n - 1: candidate(i, &order) gives a mass, 0 if it is none. The lowest orders
  // are dropped while their mass together is at most limit(mass of all).
  template <class Candidate, class Limit>
  DEVICE Selection Select(uint32_t n, const Candidate& candidate, const Limit& limit_of) const {
    Selection out = {0, 0, 0};
    for (uint32_t level = 0; level < 3; ++level) {
      const uint32_t shift = level == 0 ? 21 : level == 1 ? 10 : 0;
      const uint32_t known = level == 0 ? 0 : ~0u << (level == 1 ? 21 : 10);
      const uint32_t digit = level == 2 ? 0x3ff : 0x7ff;
      for (uint32_t b = ThreadId(); b < kBins; b += kThreads) bins()[b] = 0;
      BarrierLds();
      for (uint32_t i = ThreadId(); i < n; i += kThreads) {
        uint32_t order = 0;
        const uint64_t mass = candidate(i, &order);
        if (mass != 0 && ((order ^ out.order) & known) == 0) {
          AddLds(bins() + (order >> shift & digit), mass);
        }
      }
      BarrierLds();
      AddUp();
      if (level == 0) {
        uint64_t total = 0;
        for (uint32_t t = 0; t < 16; ++t) total += tops()[t];
        out.limit = limit_of(total);
      }
      const uint32_t top = Walk(tops(), 0, 15, out.limit, &out.below);
      const uint32_t sum = Walk(sums(), 16 * top, 16 * top + 15, out.limit, &out.below);
      const uint32_t bin = Walk(bins(), 8 * sum, 8 * sum + 7, out.limit, &out.below);
      out.order |= bin << shift;
      BarrierLds();
    }
    return out;
  }

  DEVICE Lds<uint64_t> bins() const { return arena.Get<uint64_t>(); }
  DEVICE Lds<uint64_t> sums() const { return arena.Get<uint64_t>(kSumsAt); }
  DEVICE Lds<uint64_t> tops() const { return arena.Get<uint64_t>(kTopsAt); }

  // Of 8 bins, then of 16 such sums.
  DEVICE void AddUp() const {
    uint64_t sum = 0;
    for (uint32_t b = 0; b < 8; ++b) sum += bins()[8 * ThreadId() + b];
    sums()[ThreadId()] = sum;
    BarrierLds();
    if (ThreadId() < 16) {
      sum = 0;
      for (uint32_t s = 0; s < 16; ++s) sum += sums()[16 * ThreadId() + s];
      tops()[ThreadId()] = sum;
    }
    BarrierLds();
  }
  // The first entry with which `sum` would go beyond the limit; at most `last`.
  DEVICE static uint32_t Walk(Lds<const uint64_t> masses, uint32_t first, uint32_t last,
                              uint64_t limit, uint64_t* sum) {
    uint32_t at = first;
    while (at < last && *sum + masses[at] <= limit) *sum += masses[at++];
    return at;
  }
};

// A workgroup a row that this rank owns and choose_share has not chosen for: waits for all shares. Filters
// read the row's logits three times each, from this GPU's memory.
struct ChooseNarrow {
  using Args = ChooseArgs;
  static constexpr uint32_t kLdsBytes = Selector::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t rows = step.logit_rows();
    for (uint32_t slot = worker; slot < args.slots; slot += workers) {
      const uint32_t row = slot * args.ranks + args.rank;
      if (row >= rows) return;
      const Global<const ChoiceRow> choice = step.choice(row);
      if (!TakesPart(choice)) continue;
      const Scored peak = AwaitPeak(args, row, step.index());
      ChoiceState state = {};
      const bool sane = peak.index != kInsaneLogits && peak.score >= -kLargestFloat;
      if (sane) Narrow(args, row, choice, peak.score, arena, &state);
      if (ThreadId() != 0) continue;
      At(args.states)[slot] = state;
      if (!sane) ChoicePlaces{args}.Choose(row, step.index(), kNoToken);
    }
  }

  // Whether a row is drawn and nobody has yet.
  DEVICE static bool TakesPart(Global<const ChoiceRow> choice) {
    return (choice->flags & kChoiceSample) && !ChoosesAtOnce(choice->flags, choice->top_k);
  }

  // The best of all shares, in every thread.
  DEVICE static Scored AwaitPeak(const Args& args, uint32_t row, uint32_t index) {
    const ChoicePlaces places = {args};
    AwaitShares(args, row, index);
    Scored best = kNobody;
    for (uint32_t u = LaneId(); u < places.units(); u += kWave) {
      // It came before the logits did.
      const Global<const uint64_t> found = places.Found(row, u);
      const float score = BitCast<float>(static_cast<uint32_t>(LoadFlag<Scope::kSystem>(found)));
      best = Better(best, {score, static_cast<uint32_t>(LoadFlag<Scope::kSystem>(found + 1))});
    }
    return WaveBest(best);
  }

  DEVICE static void Narrow(const Args& args, uint32_t row, Global<const ChoiceRow> choice,
                            float peak, Arena arena, ChoiceState* state) {
    const ChoicePlaces places = {args};
    const Selector selector = {arena};
    const Global<const float> values = places.Values(row);
    *state = {1, peak, -kLargestFloat, 0, ~0u, {}};
    const uint32_t top_k = choice->top_k;
    if (top_k > 0) {
      const auto logit = [&](uint32_t i, uint32_t* order) {
        *order = OrderOf(values[i]);
        return uint64_t{values[i] >= -kLargestFloat};
      };
      const auto all_but_k = [&](uint64_t total) { return total > top_k ? total - top_k : 0; };
      state->least = FromOrder(selector.Select(args.vocab, logit, all_but_k).order);
    }
    const float top_p = choice->top_p;
    if (!(top_p > 0)) return;
    const float temperature = choice->temperature, min_p = choice->min_p, least = state->least;
    const uint32_t shift = args.mass_shift;
    const auto score_of = [&](uint32_t i) { return (values[i] - peak) / temperature; };
    const auto mass = [&](uint32_t i, uint32_t* order) -> uint64_t {
      const float score = score_of(i);
      const float weight = WeightOf(score);
      *order = OrderOfScore(score);
      return values[i] >= least && !(weight < min_p) ? MassOf(weight, shift) : 0;
    };
    const auto tail = [&](uint64_t total) { return TailLimit(total, top_p); };
    const Selection found = selector.Select(args.vocab, mass, tail);
    state->order = found.order;
    // Of the equals some may be dropped still, the highest ids first.
    const uint64_t one = MassOf(WeightOf(ScoreFromOrder(found.order)), shift);
    const uint64_t dropped = (found.limit - found.below) / one;
    if (dropped == 0) return;
    const auto equal = [&](uint32_t i, uint32_t* order) -> uint64_t {
      *order = ~i;
      uint32_t score_order = 0;
      return mass(i, &score_order) != 0 && score_order == found.order;
    };
    const auto that_many = [&](uint64_t) { return dropped; };
    state->last_id = ~selector.Select(args.vocab, equal, that_many).order;
  }
};

// Who has run best so far, as words: positive doubles order like their bits.
struct Racer {
  uint32_t high, low, id;
};
DEVICE bool Beats(const Racer& a, const Racer& b) {
  if (a.high != b.high) return a.high > b.high;
  if (a.low != b.low) return a.low > b.low;
  return a.id < b.id;
}
DEVICE Racer WaveBest(const Racer& x) {
  const auto larger = [](uint32_t a, uint32_t b) { return Max(a, b); };
  const auto smaller = [](uint32_t a, uint32_t b) { return Min(a, b); };
  const uint32_t high = WaveFold(x.high, 0u, larger);
  const uint32_t low = WaveFold(x.high == high ? x.low : 0, 0u, larger);
  const bool best = x.high == high && x.low == low;
  return {high, low, WaveFold(best ? x.id : ~0u, ~0u, smaller)};
}

DEVICE Racer RacerOf(const RaceRunner& runner) {
  const uint64_t bits = BitCast<uint64_t>(runner.best);
  return {static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits), runner.winner};
}
// Of the workgroup's threads, in every one. `scratch`: four words a wave.
DEVICE Racer BestOf(const Racer& mine, Lds<uint32_t> scratch) {
  const Racer best = WaveBest(mine);
  if (LaneId() == 0) {
    scratch[4 * WaveId()] = best.high;
    scratch[4 * WaveId() + 1] = best.low;
    scratch[4 * WaveId() + 2] = best.id;
  }
  BarrierLds();
  Racer all = {scratch[0], scratch[1], scratch[2]};
  for (uint32_t w = 1; w < kWaves; ++w) {
    const Racer other = {scratch[4 * w], scratch[4 * w + 1], scratch[4 * w + 2]};
    if (Beats(other, all)) all = other;
  }
  BarrierLds();
  return all;
}

// A workgroup a row that this rank owns and chunk of the vocabulary.
struct ChooseRace {
  using Args = ChooseArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 16;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t chunks = CeilDiv(args.vocab, kChoiceChunk);
    for (uint32_t t = worker; t < args.slots * chunks; t += workers) {
      const uint32_t slot = t / chunks, row = slot * args.ranks + args.rank;
      if (row >= step.logit_rows()) return;
      const Global<const ChoiceRow> choice = step.choice(row);
      if (!ChooseNarrow::TakesPart(choice) || At(args.states)[slot].draws == 0) continue;
      // They have come, or there would be no state; but that was another workgroup's acquire.
      AwaitShares(args, row, step.index());
      const Racer best = BestOf(
          Run(args, row, choice, At(args.states)[slot], t % chunks * kChoiceChunk), arena.Get<uint32_t>());
      if (ThreadId() == 0) At(args.races)[t] = {best.high, best.low, best.id, 0};
    }
  }

  // This thread's part of a chunk, four neighbours at a time: they share a block of random numbers.
  DEVICE static Racer Run(const Args& args, uint32_t row, Global<const ChoiceRow> choice,
                          const ChoiceState& state, uint32_t begin) {
    const Global<const float> values = ChoicePlaces{args}.Values(row);
    const float temperature = choice->temperature, min_p = choice->min_p;
    const uint64_t seed = choice->seed, position = choice->position;
    RaceRunner runner;
    runner.best = 0;
    runner.winner = ~0u;
    const uint32_t end = Min(begin + kChoiceChunk, args.vocab);
    for (uint32_t first = begin + 4 * ThreadId(); first < end; first += 4 * kThreads) {
      const f32x4 four = BitCast<f32x4>(Load16(values, first / 4));
      const PhiloxBlock block = DrawBlock(seed, position, first / 4);
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 4; ++i) {
        const float logit = four[i];
        const float score = (logit - state.peak) / temperature;
        const float weight = WeightOf(score);
        const uint32_t order = OrderOfScore(score), id = first + i;
        const bool in = id < end && logit >= state.least && !(weight < min_p) &&
                        (order > state.order || (order == state.order && id <= state.last_id));
        if (in) runner.Consider(id, weight, block.word[i]);
      }
    }
    return RacerOf(runner);
  }
};

// A wave a row that this rank owns.
struct ChooseWinner {
  using Args = ChooseArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t chunks = CeilDiv(args.vocab, kChoiceChunk);
    for (uint32_t slot = worker * kWaves + WaveId(); slot < args.slots; slot += workers * kWaves) {
      const uint32_t row = slot * args.ranks + args.rank;
      if (row >= step.logit_rows()) return;
      if (!ChooseNarrow::TakesPart(step.choice(row)) || At(args.states)[slot].draws == 0) continue;
      const Global<const uint32_t> races =
          reinterpret_cast<Global<const uint32_t>>(At(args.races) + uint64_t{slot} * chunks);
      Racer best = {0, 0, ~0u};
      for (uint32_t c = LaneId(); c < chunks; c += kWave) {
        const Racer other = {races[4 * c], races[4 * c + 1], races[4 * c + 2]};
        if (Beats(other, best)) best = other;
      }
      best = WaveBest(best);
      if (LaneId() == 0) ChoicePlaces{args}.Choose(row, step.index(), best.id);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_SAMPLE_H_
