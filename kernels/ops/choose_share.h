// SPDX-License-Identifier: MIT
//
// The first of the kernels that choose, and for most rows the only one: every workgroup edits a chunk of its
// rank's logits and tells the row's owner what it found there; a workgroup of the owner waits for all chunks of
// a row and chooses. It asks for no launch and no flag: what is found travels beside its tag (TaggedFound).
//
// A greedy row needs the chunks' peaks. A row drawn with a small top_k needs of each chunk the logits that may
// be among the k largest of all: those that are not below the k-th largest of 256 parts of the chunk, a few
// more than k. The owner drops what is below the k-th largest peak, and what is left fits its LDS.
#ifndef MAINARCH_KERNELS_OPS_CHOOSE_SHARE_H_
#define MAINARCH_KERNELS_OPS_CHOOSE_SHARE_H_

#include "kernels/ops/sample.h"

namespace mainarch::kernels {

// A thread's logits of a chunk: neighbouring fours.
inline constexpr uint32_t kChunkQuads = kChoiceChunk / kThreads / 4, kChunkEach = 4 * kChunkQuads;
struct ChunkPart {
  f32x4 quads[kChunkQuads];
  // Where quad q, or element e, is in the chunk.
  DEVICE static uint32_t At(uint32_t q) { return (q * kThreads + ThreadId()) * 4; }
  DEVICE static uint32_t Place(uint32_t e) { return At(e / 4) + e % 4; }
};
// Their orders; of what lies behind the share 0.
struct ChunkOrders {
  uint32_t each[kChunkEach];
};

// The highest order and who has it; of equals the lowest id. `waves`: two words a wave.
struct Peak {
  uint32_t order, id;
};
DEVICE Peak PeakOf(const Peak& mine, Lds<uint32_t> waves) {
  const uint32_t order = WaveMax(mine.order);
  const uint32_t id = WaveFold(mine.order == order ? mine.id : ~0u, ~0u,
                               [](uint32_t a, uint32_t b) { return Min(a, b); });
  if (LaneId() == 0) {
    waves[2 * WaveId()] = order;
    waves[2 * WaveId() + 1] = id;
  }
  BarrierLds();
  Peak out = {0, ~0u};
#pragma clang loop unroll(disable)
  for (uint32_t w = 0; w < kWaves; ++w) {
    const Peak other = {waves[2 * w], waves[2 * w + 1]};
    if (other.order > out.order || (other.order == out.order && other.id < out.id)) out = other;
  }
  BarrierLds();
  return out;
}

// A number that at least `count` of the workgroup's numbers, one a thread, reach, and not many more: its low bits
// are 0. 0 if there are not so many above 0. `scratch`: a word a thread.
DEVICE uint32_t ReachedBy(uint32_t mine, uint32_t count, Lds<uint32_t> scratch) {
  constexpr uint32_t kLowBits = 12;
  scratch[ThreadId()] = mine;
  BarrierLds();
  const u32x4 four = reinterpret_cast<Lds<const u32x4>>(scratch)[LaneId()];  // each wave for itself
  uint32_t out = 0;
#pragma clang loop unroll(disable)
  for (uint32_t bit = 1u << 31; bit >= 1u << kLowBits; bit >>= 1) {
    uint32_t reach = 0;
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t one = four[e];
      reach += static_cast<uint32_t>(__builtin_popcountll(Ballot(one >= (out | bit))));
    }
    if (reach >= count) out |= bit;
  }
  BarrierLds();
  return out;
}

// Sums over the threads before this one, and over all. `scratch`: a word a wave.
struct Counted {
  uint32_t before, all;
};
DEVICE Counted CountedOf(uint32_t mine, Lds<uint32_t> scratch) {
  Counted out = {SumBefore(mine), 0};
  const uint32_t sum = WaveSum(mine);
  if (LaneId() == 0) scratch[WaveId()] = sum;
  BarrierLds();
#pragma clang loop unroll(full)
  for (uint32_t w = 0; w < kWaves; ++w) {
    const uint32_t other = scratch[w];
    out.before += w < WaveId() ? other : 0;
    out.all += other;
  }
  BarrierLds();
  return out;
}

// The owner's part: a row from what its chunks have found. All threads call it.
class RowChooser {
 public:
  // Candidates; of them those that may be among the k largest; and those that are.
  static constexpr uint32_t kMostFound = 8192, kMostNear = 1024, kMostDrawn = kThreads;
  static constexpr uint32_t kNearAt = kMostFound;                 // after a byte a candidate
  static constexpr uint32_t kScratchAt = kNearAt + kMostNear * 8;  // a word a thread and 16 more
  static constexpr uint32_t kUnitsAt = kScratchAt;
  static constexpr uint32_t kCountsAt = kScratchAt + kThreads * 4;
  static constexpr uint32_t kWavesAt = kCountsAt + 16;
  static constexpr uint32_t kOwnLdsBytes = kWavesAt + kWaves * 16;
  // What does not fit is drawn as rows of any filter are, by one workgroup.
  static constexpr uint32_t kLdsBytes =
      kOwnLdsBytes > Selector::kLdsBytes ? kOwnLdsBytes : Selector::kLdsBytes;

  DEVICE RowChooser(const ChooseArgs& args, const StepView& step, uint32_t row, Arena arena)
      : args_(args), row_(row), index_(step.index()), choice_(step.choice(row)), arena_(arena) {}

  DEVICE void Run() {
    const ChoicePlaces places = {args_};
    Peak mine = {0, ~0u};
#pragma clang loop unroll(disable)
    for (uint32_t u = ThreadId(); u < places.units(); u += kThreads) {
      const FoundPair found = AwaitTwoFound(places.Found(row_, u), index_);
      const Peak other = {found.first, found.second};
      // Units of a thread come by ascending id.
      if (other.order > mine.order) mine = other;
    }
    const Peak peak = PeakOf(mine, arena_.Get<uint32_t>(kScratchAt));
    const bool sane = peak.order != 0 && peak.order <= kLargestOrder;
    uint32_t token = sane ? peak.id : kNoToken;
    if (sane && (choice_->flags & kChoiceSample)) [[unlikely]] {
      peak_ = LogitOfOrder(peak.order);
      token = Near(places, mine.order) && Drawn() ? Winner() : DrawnOfAll();
    }
    if (ThreadId() == 0) places.Choose(row_, index_, token);
  }

 private:
  // [0] candidates that may be drawn, [1] those that are.
  DEVICE Lds<uint32_t> counts() const { return arena_.Get<uint32_t>(kCountsAt); }
  DEVICE Lds<uint32_t> scratch() const { return arena_.Get<uint32_t>(kScratchAt); }

  // Of all candidates those that reach the k-th largest of the chunks' peaks: order and id at kNearAt.
  // False if there are too many.
  DEVICE bool Near(const ChoicePlaces& places, uint32_t peak) {
    if (places.units() > kThreads) return false;
    const uint32_t unit = ThreadId();
    uint32_t found = 0;
    if (unit < places.units()) found = AwaitFound(places.Found(row_, unit) + 2, index_);
    const uint32_t least = ReachedBy(peak, choice_->top_k, scratch());
    if (ThreadId() < 2) counts()[ThreadId()] = 0;
    const Counted at = CountedOf(found, arena_.Get<uint32_t>(kWavesAt));
    const bool all_here = CountedOf(found > kChunkFound, arena_.Get<uint32_t>(kWavesAt)).all == 0;
    if (!all_here || at.all > kMostFound) return false;
    // Whose a candidate is, and the first one of each unit.
    const Lds<uint8_t> units = arena_.Get<uint8_t>();
    for (uint32_t i = 0; i < found; ++i) units[at.before + i] = static_cast<uint8_t>(unit);
    arena_.Get<uint32_t>(kUnitsAt)[unit] = at.before;
    BarrierLds();
    Fetch(places, at.all, least);
    BarrierLds();
    return Uniform(+counts()[0]) <= kMostNear;
  }

  DEVICE void Fetch(const ChoicePlaces& places, uint32_t all, uint32_t least) const {
    constexpr uint32_t kBatch = 8;  // of a thread, asked for at once
    for (uint32_t first = 0; first < all; first += kBatch * kThreads) {
      Global<const uint64_t> at[kBatch];
      uint64_t words[kBatch][2];
#pragma clang loop unroll(full)
      for (uint32_t b = 0; b < kBatch; ++b) {
        const uint32_t n = Min(first + b * kThreads + ThreadId(), all - 1);
        const uint32_t unit = arena_.Get<uint8_t>()[n];
        const uint32_t i = n - arena_.Get<uint32_t>(kUnitsAt)[unit];
        at[b] = places.Found(row_, unit) + kFoundHead + 2 * i;
        words[b][0] = LoadFlag<Scope::kSystem>(at[b]);
        words[b][1] = LoadFlag<Scope::kSystem>(at[b] + 1);
      }
#pragma clang loop unroll(full)
      for (uint32_t b = 0; b < kBatch; ++b) {
        uint32_t value[2];
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < 2; ++w) {
          const bool here = static_cast<uint32_t>(words[b][w] >> 32) == FoundTag(index_);
          value[w] = here ? static_cast<uint32_t>(words[b][w]) : AwaitFound(at[b] + w, index_);
        }
        if (first + b * kThreads + ThreadId() < all && value[0] >= least) Put(value[0], value[1]);
      }
    }
  }
  DEVICE void Put(uint32_t order, uint32_t id) const {
    const uint32_t place = AddLds(counts(), 1u);
    if (place < kMostNear) arena_.Get<u32x2>(kNearAt)[place] = u32x2{order, id};
  }

  // Where the k largest of the near ones go: over the candidates' units, which are done with.
  struct Taken {
    Lds<uint32_t> order, id;
    Lds<uint64_t> mass;
  };
  DEVICE Taken taken() const {
    return {arena_.Get<uint32_t>(), arena_.Get<uint32_t>(kMostDrawn * 4),
            arena_.Get<uint64_t>(kMostDrawn * 8)};
  }

  // Those with fewer than k above them, with their scores' orders and their masses. False if equals are too
  // many.
  DEVICE bool Drawn() {
    const Lds<const u32x2> near = arena_.Get<u32x2>(kNearAt);
    const uint32_t count = Uniform(+counts()[0]);
    const uint32_t top_k = choice_->top_k;
    const float temperature = choice_->temperature, min_p = choice_->min_p;
    const Taken to = taken();
    for (uint32_t i = ThreadId(); i < count; i += kThreads) {
      const u32x2 own = near[i];
      const uint32_t order = own[0];
      uint32_t above = 0;
      for (uint32_t j = 0; j < count; ++j) {
        const uint32_t other = near[j][0];
        above += other > order;
      }
      if (above >= top_k) continue;
      const uint32_t place = AddLds(counts() + 1, 1u);
      if (place >= kMostDrawn) continue;
      const float score = (LogitOfOrder(order) - peak_) / temperature, weight = WeightOf(score);
      to.order[place] = OrderOfScore(score);
      to.id[place] = own[1];
      to.mass[place] = weight < min_p ? 0 : MassOf(weight, args_.mass_shift);
    }
    BarrierLds();
    return Uniform(+counts()[1]) <= kMostDrawn;
  }

  // The best of the race that a thread's one is in, if it is: top_p drops the lowest scores, of equals the
  // highest ids, while their mass together is at most the limit (ChooseNarrow).
  DEVICE uint32_t Winner() const {
    const Taken all = taken();
    const uint32_t count = Uniform(+counts()[1]), i = ThreadId();
    const ChooseArgs& args = ArgumentsAgain<ChooseArgs>();
    const Global<const ChoiceRow> choice = StepView(args.step).choice(row_);
    const float top_p = choice->top_p, min_p = choice->min_p;
    RaceRunner runner;
    runner.best = 0;
    runner.winner = ~0u;
    if (i < count) {
      const uint32_t order = all.order[i], id = all.id[i];
      uint64_t total = 0, below = 0;
      for (uint32_t j = 0; j < count; ++j) {
        const uint64_t mass = all.mass[j];
        const uint32_t other = all.order[j];
        total += mass;
        below += other < order || (other == order && all.id[j] >= id) ? mass : 0;
      }
      const float weight = WeightOf(ScoreFromOrder(order));
      const bool in = !(weight < min_p) && (!(top_p > 0) || below > TailLimit(total, top_p));
      const PhiloxBlock block = DrawBlock(choice->seed, choice->position, id / 4);
      const uint32_t low = id % 2 == 0 ? block.word[0] : block.word[1];
      const uint32_t high = id % 2 == 0 ? block.word[2] : block.word[3];
      if (in) runner.Consider(id, weight, id % 4 < 2 ? low : high);
    }
    return BestOf(RacerOf(runner), arena_.Get<uint32_t>(kWavesAt)).id;
  }

  // What it needs is made anew, so that it is in no registers before.
  template <class Body>
  DEVICE auto Alone(Team& team, Body body) const {
    const ChooseArgs& args = ArgumentsAgain<ChooseArgs>();
    const Selector selector = {arena_, team, ChoicePlaces{args}.Values(row_), args.vocab};
    return body(args, selector, StepView(args.step).choice(row_));
  }

  // Of the whole vocabulary, by this workgroup alone: rows with more equals than there is room for.
  DEVICE uint32_t DrawnOfAll() const {
    BarrierLds();
    AwaitShares(ArgumentsAgain<ChooseArgs>(), row_, index_);
    Team alone = {0, 1, nullptr};
    const RaceField field = Alone(alone, [&](const ChooseArgs& args, const Selector& selector,
                                             Global<const ChoiceRow> choice) {
      return FieldOf(selector, choice, args.mass_shift, peak_);
    });
    BarrierLds();
    const Racer best = Alone(alone, [&](const ChooseArgs&, const Selector& selector,
                                        Global<const ChoiceRow> choice) {
      return RaceOf(selector, choice, field);
    });
    return BestOf(best, arena_.Get<uint32_t>()).id;
  }

  const ChooseArgs& args_;
  const uint32_t row_, index_;
  const Global<const ChoiceRow> choice_;
  const Arena arena_;
  float peak_ = 0;
};

// A workgroup a row and chunk. When it has told all that it has, a workgroup may wait for others' of a row that
// its rank owns (ChoosePart).
struct ChooseShare {
  using Args = ChooseArgs;
  static constexpr uint32_t kScratchAt = kChoiceChunk * 4;  // of a chunk, by which edits are made
  static constexpr uint32_t kCodeAt = RowChooser::kLdsBytes;  // nobody looks at it
  static constexpr uint32_t kLdsBytes = kCodeAt + kThreads * isa::kLdsDmaBytes;
  static_assert(kScratchAt + kThreads * 4 + kWaves * 8 <= kCodeAt);

  // A step runs this code once, a line after the other out of memory, each waited for: so all of it is asked for at
  // once, a line a thread, into the L2. The kernels behind this one in the object are longer than what is read
  // beyond its end.
  DEVICE static void AskForCode(Arena arena) {
    constexpr uint32_t kLine = 128;
    const uint64_t here = __builtin_amdgcn_s_getpc();
    isa::LoadToLds(reinterpret_cast<Global<const isa::LdsDmaWord>>((here & ~uint64_t{kLine - 1}) + ThreadId() * kLine),
                   arena.Get<isa::LdsDmaWord>(kCodeAt) + WaveId() * kWave);
  }

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    AskForCode(arena);
    const StepView step(args.step);
    const uint32_t total = args.part == kChooseWait ? 0 : step.logit_rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      Chunk(args, step, t / args.chunks, t % args.chunks, arena);
    }
    // A row a worker, of which there are as many as owned rows: a loop would keep what a draw is made of in
    // registers.
    const uint32_t row = worker * args.ranks + args.rank;
    if (args.part != kChooseTell && row < step.logit_rows()) {
      const Global<const ChoiceRow> choice = step.choice(row);
      const uint32_t flags = choice->flags;
      if ((flags & kChoiceToken) && ChoosesAtOnce(flags, choice->top_k)) {
        RowChooser(args, step, row, arena).Run();
      }
    }
    BarrierLds();  // and one end for all: the resident kernel comes back from there
  }

  DEVICE static void Chunk(const Args& args, const StepView& step, uint32_t row, uint32_t chunk,
                           Arena arena) {
    const Global<const ChoiceRow> choice = step.choice(row);
    const uint32_t begin = Min(chunk * kChoiceChunk, args.share);
    const uint32_t count = Min(args.share - begin, kChoiceChunk);
    const uint32_t first = args.share_first + begin;
    const uint32_t place = ChoicePlaces{args}.Place(row, step.index());
    ChunkPart part = Load(At(args.logits) + uint64_t{place} * args.share_stride + begin, count);
    const uint32_t flags = Uniform(+choice->flags);
    if (flags & kChoiceRead) [[unlikely]] {
      Store(At(args.host_logits) + uint64_t{place} * args.vocab_stride + first, first, count, part);
    }
    if (!(flags & kChoiceToken)) return;
    if (flags & kChoiceMask) [[unlikely]] {
      const Global<const uint32_t> mask = step.words(choice->counts_at + 2 * choice->counts);
      const auto allowed = [&](uint32_t i) {
        return i < count && (mask[(first + i) / 32] >> (first + i) % 32 & 1) != 0;
      };
      Change(part, [&](uint32_t i, float logit) {
        return allowed(i) ? logit : logit - __builtin_inff();
      });
    }
    if (choice->edits + choice->counts > 0) [[unlikely]] {
      Edit(step, choice, first, count, part, arena);
    }
    Send(args, row, chunk, first, count, choice, step.index(), part, arena);
  }

  // Four at a time: a row's stride is a multiple of four.
  DEVICE static ChunkPart Load(Global<const float> logits, uint32_t count) {
    ChunkPart part;
#pragma clang loop unroll(full)
    for (uint32_t q = 0; q < kChunkQuads; ++q) {
      const uint32_t at = ChunkPart::At(q);
      part.quads[q] = f32x4{0, 0, 0, 0};
      if (at < count) part.quads[q] = BitCast<f32x4>(Load16(logits, at / 4));
    }
    return part;
  }
  template <class F>
  DEVICE static void Change(ChunkPart& part, F f) {
#pragma clang loop unroll(full)
    for (uint32_t q = 0; q < kChunkQuads; ++q) {
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < 4; ++e) {
        const float logit = part.quads[q][e];
        part.quads[q][e] = f(ChunkPart::At(q) + e, logit);
      }
    }
  }
  // `first`: the place of the chunk in a row whose start is aligned.
  DEVICE static void Store(Global<float> to, uint32_t first, uint32_t count, const ChunkPart& part) {
#pragma clang loop unroll(full)
    for (uint32_t q = 0; q < kChunkQuads; ++q) {
      const uint32_t at = ChunkPart::At(q);
      if (first % 4 == 0 && at + 4 <= count) {
        Store16(to, at / 4, BitCast<u32x4>(part.quads[q]));
        continue;
      }
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < 4; ++e) {
        const float logit = part.quads[q][e];
        if (at + e < count) to[at + e] = logit;
      }
    }
  }

  // Edits of one token happen in order: one thread makes them all. Counted tokens differ.
  DEVICE static void Edit(const StepView& step, Global<const ChoiceRow> choice, uint32_t first,
                          uint32_t count, ChunkPart& part, Arena arena) {
    const Lds<float> held = arena.Get<float>();
    Change(part, [&](uint32_t i, float logit) { return held[i] = logit; });
    BarrierLds();
    const uint32_t edits = choice->edits, counts = choice->counts;
    const Global<const uint32_t> edit = step.words(choice->edits_at);
    for (uint32_t e = 0; e < edits; ++e) {
      const uint32_t i = edit[3 * e] - first;
      if (i >= count || i % kThreads != ThreadId()) continue;
      const float value = BitCast<float>(+edit[3 * e + 1]);
      held[i] = edit[3 * e + 2] != 0 ? value : held[i] + value;
    }
    BarrierLds();
    const float repetition = choice->repetition, frequency = choice->frequency;
    const float presence = choice->presence;
    const Global<const uint32_t> counted = step.words(choice->counts_at);
    for (uint32_t c = ThreadId(); c < counts; c += kThreads) {
      const uint32_t i = counted[2 * c] - first, produced = counted[2 * c + 1];
      if (i >= count) continue;
      float logit = held[i];
      if (repetition != 1.0f) logit = logit > 0 ? logit / repetition : logit * repetition;
      if (produced > 0) {
        logit -= static_cast<float>(produced) * frequency;
        logit -= presence;
      }
      held[i] = logit;
    }
    BarrierLds();
    Change(part, [&](uint32_t i, float) { return held[i]; });
    BarrierLds();
  }

  DEVICE static void Send(const Args& args, uint32_t row, uint32_t chunk, uint32_t first,
                          uint32_t count, Global<const ChoiceRow> choice, uint32_t index,
                          const ChunkPart& part, Arena arena) {
    const ChoicePlaces places = {args};
    const bool draws = choice->flags & kChoiceSample;
    const uint32_t unit = args.rank * args.chunks + chunk, top_k = choice->top_k;
    const Global<uint64_t> found = places.Found(row, unit);
    ChunkOrders orders;
    Peak peak = {0, ~0u};
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kChunkEach; ++e) {
      const float logit = part.quads[e / 4][e % 4];
      orders.each[e] = ChunkPart::Place(e) < count ? OrderOfLogit(logit) : 0;
      peak.order = Max(peak.order, orders.each[e]);
    }
#pragma clang loop unroll(full)
    for (uint32_t e = kChunkEach; e-- > 0;) {
      peak.id = orders.each[e] == peak.order ? first + ChunkPart::Place(e) : peak.id;
    }
    peak = PeakOf(peak, arena.Get<uint32_t>(kScratchAt));
    if (ThreadId() == 0) {
      TellFound(found, index, peak.order);
      TellFound(found + 1, index, peak.id);
    }
    if (!draws) [[likely]] return;
    if (ChoosesAtOnce(kChoiceSample, top_k)) Find(found, first, index, top_k, orders, arena);
    Store(places.Values(row) + first, first, count, part);
    Publish<Scope::kSystem>(places.Flag(row, unit, index), places.FlagOf(index), ThreadId() == 0);
  }

  // The chunk's candidates: their number at [2], then order and id of each.
  DEVICE static void Find(Global<uint64_t> found, uint32_t first, uint32_t index, uint32_t top_k,
                          const ChunkOrders& orders, Arena arena) {
    uint32_t most = 0;
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kChunkEach; ++e) most = Max(most, orders.each[e]);
    const uint32_t least = Max(ReachedBy(most, top_k, arena.Get<uint32_t>(kScratchAt)), 1u);
    uint32_t mine = 0;
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kChunkEach; ++e) mine += orders.each[e] >= least;
    const Counted counted = CountedOf(mine, arena.Get<uint32_t>(kScratchAt));
    uint32_t at = counted.before;
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kChunkEach; ++e) {
      if (orders.each[e] < least) continue;
      if (at < kChunkFound) {
        TellFound(found + kFoundHead + 2 * at, index, orders.each[e]);
        TellFound(found + kFoundHead + 2 * at + 1, index, first + ChunkPart::Place(e));
      }
      ++at;
    }
    if (ThreadId() == 0) TellFound(found + 2, index, counted.all);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_CHOOSE_SHARE_H_
