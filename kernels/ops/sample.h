// SPDX-License-Identifier: MIT
//
// The LM head's choice: edits (bans, bias, penalties), argmax, or top-k, min-p, top-p and a draw,
// over a vocabulary that lies in shares on the ranks. The tokens are those of the CPU's sampler
// (src/decode/sampler.h), not nearly but always: both are made of kernels/common/draw.h, where
// nothing depends on an order of additions.
//
// Argument and data flow: ChooseArgs. A greedy step takes one round over the fabric and 16 bytes a
// chunk, a row drawn with a small top_k some hundred more, and both one launch (ops/choose_share.h). Here are
// those of rows with other filters, whose logits the owner has whole: a team of workgroups narrows them, and draws.
#ifndef MAINARCH_KERNELS_OPS_SAMPLE_H_
#define MAINARCH_KERNELS_OPS_SAMPLE_H_

#include "kernels/choice_args.h"
#include "kernels/common/draw.h"
#include "kernels/common/kernel.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// An order of logits in which -inf is 0, and what is no number, or infinite, comes after all that are.
DEVICE uint32_t OrderOfLogit(float logit) { return OrderOf(logit) - OrderOf(-__builtin_inff()); }
DEVICE float LogitOfOrder(uint32_t order) { return FromOrder(order + OrderOf(-__builtin_inff())); }
inline constexpr uint32_t kLargestOrder = OrderOf(kLargestFloat) - OrderOf(-__builtin_inff());

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
  DEVICE uint32_t ResultPlace(uint32_t row, uint32_t index) const {
    return index % kResultSlots * args.max_rows + row;
  }
  // One lane: the row's token, or kNoToken, to the host and to every GPU.
  DEVICE void Choose(uint32_t row, uint32_t index, uint32_t token) const {
    const uint32_t at = Place(row, index);
    for (uint32_t r = 0; r < args.ranks; ++r) TellToken(At(args.tokens[r]) + at, index, token);
    if (token == kNoToken) return;
    const Global<ChoiceResult> result = At(args.results) + ResultPlace(row, index);
    result->token = token;
    result->chosen = 1;
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

// ---- words that carry their tag (kernels/choice_args.h) ----

DEVICE uint32_t AwaitFound(Global<const uint64_t> at, uint32_t index) {
  while (true) {
    const uint64_t word = LoadFlag<Scope::kSystem>(at);
    if (static_cast<uint32_t>(word >> 32) == FoundTag(index)) return static_cast<uint32_t>(word);
    Pause();
  }
}
// Two that lie side by side, which come with one way there and back.
struct FoundPair {
  uint32_t first, second;
};
DEVICE FoundPair AwaitTwoFound(Global<const uint64_t> at, uint32_t index) {
  while (true) {
    const uint64_t first = LoadFlag<Scope::kSystem>(at), second = LoadFlag<Scope::kSystem>(at + 1);
    const uint32_t tag = FoundTag(index);
    if (static_cast<uint32_t>(first >> 32) == tag && static_cast<uint32_t>(second >> 32) == tag) {
      return {static_cast<uint32_t>(first), static_cast<uint32_t>(second)};
    }
    Pause();
  }
}
DEVICE void TellFound(Global<uint64_t> at, uint32_t index, uint32_t value) {
  StoreFlag<Scope::kSystem>(at, TaggedFound(index, value));
}

// ---- narrowing of a whole row ----

// Workgroups that work on a row together. A pass adds up their bins in memory, in one of three places, by turns: who
// comes out of a pass has left the place of the pass before, and zeroes its share of that. Words there are only
// added to, stored and loaded as atomics, so that no fence is needed.
inline constexpr uint32_t kRaceBins = 2048, kRacePlaces = 3;
static_assert(kRaceTeamWords == kRacePlaces * kRaceBins + kRaceTeamLine);
struct Team {
  uint32_t member, members;
  Global<uint64_t> memory;  // kRaceTeamWords, zeros before the first pass and after the last
  uint32_t passes = 0;

  // One place's sum of all members' bins, in all of them.
  DEVICE void AddUp(Lds<uint64_t> bins) {
    if (members == 1) return;
    const Global<uint64_t> place = Place(passes);
#pragma clang loop unroll(disable)
    for (uint32_t b = ThreadId(); b < kRaceBins; b += kThreads) {
      const uint64_t own = bins[b];
      if (own != 0) AddFlag<Scope::kDevice>(place + b, own);
    }
    Meet();
    constexpr uint32_t kEach = kRaceBins / kThreads;
    uint64_t sums[kEach];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kEach; ++i) {
      sums[i] = LoadFlag<Scope::kDevice, uint64_t>(place + i * kThreads + ThreadId());
    }
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kEach; ++i) bins[i * kThreads + ThreadId()] = sums[i];
    Clear(passes + 1);  // that of the pass before, and of the one behind the next
    BarrierLds();
  }
  // After the last pass: all is zeros again, and whoever comes last sets the count to 0.
  DEVICE void Leave() {
    if (passes == 0) return;
    Meet();
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < kRacePlaces; ++i) Clear(i);
    WaitVectorMemory();
    Barrier();
    if (ThreadId() != 0) return;
    if (AddFlag<Scope::kDevice>(Arrivals(), 1u) + 1 == (passes + 1) * members) {
      StoreFlag<Scope::kDevice>(Arrivals(), 0u);
    }
  }

 private:
  DEVICE void Meet() {
    WaitVectorMemory();
    Barrier();
    ++passes;
    if (ThreadId() == 0) {
      AddFlag<Scope::kDevice>(Arrivals(), 1u);
      WaitFlag<Scope::kDevice>(Arrivals(), passes * members);
    }
    BarrierLds();
  }
  DEVICE Global<uint64_t> Place(uint32_t pass) const {
    return memory + pass % kRacePlaces * kRaceBins;
  }
  DEVICE Global<uint32_t> Arrivals() const {
    return reinterpret_cast<Global<uint32_t>>(memory + kRacePlaces * kRaceBins);
  }
  DEVICE void Clear(uint32_t pass) const {
    const Global<uint64_t> place = Place(pass);
#pragma clang loop unroll(disable)
    for (uint32_t b = member * kThreads + ThreadId(); b < kRaceBins; b += members * kThreads) {
      StoreFlag<Scope::kDevice>(place + b, uint64_t{0});
    }
  }
};

// f(i, logit) of the member's chunks of a row.
template <class F>
DEVICE void ForEachLogit(Global<const float> values, uint32_t vocab, const Team& team, F f) {
  for (uint32_t begin = team.member * kChoiceChunk; begin < vocab; begin += team.members * kChoiceChunk) {
    const uint32_t end = Min(begin + kChoiceChunk, vocab);
#pragma clang loop unroll(disable)
    for (uint32_t first = begin + 4 * ThreadId(); first < end; first += 4 * kThreads) {
      const f32x4 four = BitCast<f32x4>(Load16(values, first / 4));
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < 4; ++e) {
        const float logit = four[e];
        if (first + e < end) f(first + e, logit);
      }
    }
  }
}

// Who takes part in a draw, found by radix selection on an order of 32 bits in digits of 11, 11 and
// 10, the masses of equal digits added up in LDS and by the team (integers: any order will do).
struct Selection {
  uint32_t order;  // of whoever is first not to be dropped
  uint64_t below;  // mass of the lower orders
  uint64_t limit;  // of what is dropped
};
struct Selector {
  static constexpr uint32_t kBins = kRaceBins;
  static constexpr uint32_t kSumsAt = kBins * 8, kTopsAt = kSumsAt + kThreads * 8;
  static constexpr uint32_t kLdsBytes = kTopsAt + 16 * 8;

  Arena arena;
  Team& team;
  Global<const float> values;
  uint32_t vocab;

  // candidate(i, logit, &order) gives a mass, 0 if it is none. The lowest orders are dropped while
  // their mass together is at most limit(mass of all).
  template <class Candidate, class Limit>
  DEVICE Selection Select(const Candidate& candidate, const Limit& limit_of) const {
    Selection out = {0, 0, 0};
#pragma clang loop unroll(disable)
    for (uint32_t level = 0; level < 3; ++level) {
      const uint32_t shift = level == 0 ? 21 : level == 1 ? 10 : 0;
      const uint32_t known = level == 0 ? 0 : ~0u << (level == 1 ? 21 : 10);
      const uint32_t digit = level == 2 ? 0x3ff : 0x7ff;
#pragma clang loop unroll(disable)
      for (uint32_t b = ThreadId(); b < kBins; b += kThreads) bins()[b] = 0;
      BarrierLds();
      ForEachLogit(values, vocab, team, [&](uint32_t i, float logit) {
        uint32_t order = 0;
        const uint64_t mass = candidate(i, logit, &order);
        if (mass != 0 && ((order ^ out.order) & known) == 0) {
          AddLds(bins() + (order >> shift & digit), mass);
        }
      });
      BarrierLds();
      team.AddUp(bins());
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

// Of a row, by a team or by one workgroup alone. All threads of all members call it, and it gives all of them the
// same. One selection after the other: the k-th largest logit, the last score that top_p keeps, and of those that
// equal it the last id, because of these some may be dropped still, the highest ids first.
DEVICE RaceField FieldOf(const Selector& selector, Global<const ChoiceRow> choice, uint32_t shift, float peak) {
  constexpr uint32_t kByLogit = 0, kByScore = 1, kById = 2;
  RaceField out;
  out.peak = peak;
  uint64_t dropped = 0;  // of the equals
#pragma clang loop unroll(disable)
  for (uint32_t by = choice->top_k > 0 ? kByLogit : kByScore; by <= kById; ++by) {
    const uint32_t top_k = choice->top_k;
    const float top_p = choice->top_p, temperature = choice->temperature, min_p = choice->min_p;
    if ((by == kByScore && !(top_p > 0)) || (by == kById && Uniform(uint32_t{dropped != 0}) == 0)) break;
    const auto candidate = [&](uint32_t i, float value, uint32_t* order) -> uint64_t {
      const float score = (value - peak) / temperature;
      const float weight = WeightOf(score);
      const bool in = value >= out.least && !(weight < min_p);
      const uint64_t mass = in ? MassOf(weight, shift) : 0;
      const uint32_t by_score = OrderOfScore(score);
      *order = by == kByLogit ? OrderOf(value) : by == kByScore ? by_score : ~i;
      if (by == kByLogit) return value >= -kLargestFloat;
      return by == kByScore ? mass : mass != 0 && by_score == out.order;
    };
    const auto limit = [&](uint64_t total) {
      if (by == kByLogit) return total > top_k ? total - top_k : 0;
      return by == kByScore ? TailLimit(total, top_p) : dropped;
    };
    const Selection found = selector.Select(candidate, limit);
    if (by == kByLogit) {
      out.least = FromOrder(found.order);
    } else if (by == kByScore) {
      out.order = found.order;
      dropped = (found.limit - found.below) / MassOf(WeightOf(ScoreFromOrder(found.order)), shift);
    } else {
      out.last_id = ~found.order;
    }
  }
  return out;
}

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

// The best of this thread's part of the member's chunks, four neighbours at a time: they share a block of random
// numbers.
DEVICE Racer RaceOf(const Selector& selector, Global<const ChoiceRow> choice, const RaceField& field) {
  const float temperature = choice->temperature, min_p = choice->min_p;
  RaceRunner runner;
  runner.best = 0;
  runner.winner = ~0u;
  const Team& team = selector.team;
  for (uint32_t begin = team.member * kChoiceChunk; begin < selector.vocab;
       begin += team.members * kChoiceChunk) {
    const uint32_t end = Min(begin + kChoiceChunk, selector.vocab);
#pragma clang loop unroll(disable)
    for (uint32_t first = begin + 4 * ThreadId(); first < end; first += 4 * kThreads) {
      const f32x4 four = BitCast<f32x4>(Load16(selector.values, first / 4));
      const PhiloxBlock block = DrawBlock(choice->seed, choice->position, first / 4);
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 4; ++i) {
        const float logit = four[i];
        const float score = (logit - field.peak) / temperature;
        const float weight = WeightOf(score);
        const uint32_t order = OrderOfScore(score), id = first + i;
        const bool in = id < end && logit >= field.least && !(weight < min_p) &&
                        (order > field.order || (order == field.order && id <= field.last_id));
        if (in) runner.Consider(id, weight, block.word[i]);
      }
    }
  }
  return RacerOf(runner);
}

// Whether a row is drawn, and choose_share has not chosen for it.
DEVICE bool IsRaced(Global<const ChoiceRow> choice) {
  return !ChoosesAtOnce(choice->flags, choice->top_k);
}

// A team of workgroups a row that this rank owns and that is raced: each has chunks of the vocabulary. Filters read
// the row's logits three times each, from this GPU's memory.
struct ChooseNarrow {
  using Args = ChooseArgs;
  static constexpr uint32_t kLdsBytes = Selector::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t members = Min(CeilDiv(args.vocab, kChoiceChunk), workers);
    const uint32_t teams = Min(workers / members, kRaceTeams), own = worker / members;
    if (own >= teams) return;
    Team team = {worker % members, members, At(args.teams) + own * kRaceTeamWords};
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < args.slots; ++slot) {
      const uint32_t row = slot * args.ranks + args.rank;
      if (row >= step.logit_rows()) break;
      const Global<const ChoiceRow> choice = step.choice(row);
      if (!IsRaced(choice) || count++ % teams != own) continue;
      AwaitShares(args, row, step.index());
      RaceField field;
      const float peak = PeakOf(args, row);
      if (peak >= -kLargestFloat) {
        const Selector selector = {arena, team, ChoicePlaces{args}.Values(row), args.vocab};
        field = FieldOf(selector, choice, args.mass_shift, peak);
        field.draws = 1;
      }
      if (team.member == 0 && ThreadId() == 0) At(args.fields)[slot] = field;
    }
    team.Leave();
  }

  // The largest logit; if one is not sane, or none is allowed, -inf. They came before the logits did.
  DEVICE static float PeakOf(const Args& args, uint32_t row) {
    const ChoicePlaces places = {args};
    uint32_t order = 0;
#pragma clang loop unroll(disable)
    for (uint32_t u = LaneId(); u < places.units(); u += kWave) {
      order = Max(order, static_cast<uint32_t>(LoadFlag<Scope::kSystem, uint64_t>(places.Found(row, u))));
    }
    order = WaveMax(order);
    return order <= kLargestOrder ? LogitOfOrder(order) : -__builtin_inff();
  }
};

// A workgroup a row that this rank owns and that is raced, and chunk of the vocabulary. Each tells the first of
// its row who has run best, which waits for them all.
struct ChooseRace {
  using Args = ChooseArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 16;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const Lds<uint32_t> scratch = arena.Get<uint32_t>();
    const uint32_t chunks = CeilDiv(args.vocab, kChoiceChunk);
    const uint32_t index = step.index();
    for (uint32_t t = worker; t < args.slots * chunks; t += workers) {
      const uint32_t slot = t / chunks, row = slot * args.ranks + args.rank;
      if (row >= step.logit_rows()) break;
      const Global<const ChoiceRow> choice = step.choice(row);
      if (!IsRaced(choice)) continue;
      // They have come, or nobody had narrowed; but that was another workgroup's acquire.
      AwaitShares(args, row, index);
      Team alone = {t % chunks, chunks, nullptr};
      const Selector selector = {arena, alone, ChoicePlaces{args}.Values(row), args.vocab};
      Racer best = {0, 0, kNoToken};
      if (At(args.fields)[slot].draws != 0) {
        best = BestOf(RaceOf(selector, choice, At(args.fields)[slot]), scratch);
      }
      if (ThreadId() == 0) {
        const Global<uint64_t> told = At(args.races) + t * kRacerWords;
        TellFound(told, index, best.high);
        TellFound(told + 1, index, best.low);
        TellFound(told + 2, index, best.id);
      }
    }
    // When all that a workgroup has is told.
    for (uint32_t slot = worker; slot < args.slots; slot += workers) {
      const uint32_t row = slot * args.ranks + args.rank;
      if (row >= step.logit_rows()) return;
      if (!IsRaced(step.choice(row))) continue;
      Racer best = {0, 0, kNoToken};
      for (uint32_t c = ThreadId(); c < chunks; c += kThreads) {
        const Global<const uint64_t> told = At(args.races) + (slot * chunks + c) * kRacerWords;
        const FoundPair two = AwaitTwoFound(told, index);
        const Racer other = {two.first, two.second, AwaitFound(told + 2, index)};
        if (Beats(other, best)) best = other;
      }
      best = BestOf(best, scratch);
      if (ThreadId() == 0) ChoicePlaces{args}.Choose(row, index, best.id);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_SAMPLE_H_
