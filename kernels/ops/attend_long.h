// SPDX-License-Identifier: MIT
//
// Attention over pages where a context may be longer than kLongSplits splits: a workgroup goes through all
// blocks of a split (LongSplitBlocks), its waves each through every fourth group of 32 tokens. Of a row whose splits
// are one block it does what Attend does, to the bit.
//
// What comes from memory is asked for a block ahead: numbers of pages two blocks, K of the next block when
// this one's scores are made, V of it when this one's are added. So half of what a wave holds is always on its way,
// and there is one copy of each in registers.
//
// `kFar`: of two caches (near_args.h) the far tokens alone, whose parts come first. Others are masked as what lies behind a
// window is: tokens are counted from the first one seen on.
//
// Where several ranks hold the head, a rank takes its splits of a row that they share (long_args.h), for the queries of
// all of them, and all splits of any other row.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_LONG_H_
#define MAINARCH_KERNELS_OPS_ATTEND_LONG_H_

#include "kernels/near_args.h"
#include "kernels/ops/attention.h"

namespace mainarch::kernels {

template <KvFormat kFormat, uint32_t kHeadDim, bool kFar = false, uint32_t kValueDim = kHeadDim>
struct AttendLong {
  using Args = AttendLongArgs;
  using Block = Attend<kFormat, kHeadDim, kValueDim, false>;
  using PageOf = typename Block::PageOf;
  static constexpr uint32_t kLdsBytes = Block::kLdsBytes;
  static constexpr bool kFp8Key = Block::kKey == KvForm::kFp8, kFp8Value = Block::kValue == KvForm::kFp8;
  static constexpr bool kFp4Value = Block::kValue == KvForm::kFp4;
  // Where arithmetic is as long as memory, three workgroups a compute unit hide more than registers for more that is on its
  // way. Of bf16 two do: 107 us in place of 111 (8 KV heads, 131,072 tokens).
  static constexpr uint32_t kLeastWaves = kHeadDim <= 128 && (kFp8Key || Block::kKey == KvForm::kFp4) ? 3 : 1;
  // Of a wide head registers do not hold all at once: it goes through Attend's parts, and pages alone are ahead.
  static constexpr bool kAhead = Block::kWhole && (kFormat != KvFormat::kK8V4 || kHeadDim < 256);

  // Arguments are read again for each piece of work: in registers they would be in the way of all the rest.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.attend.step);
    const uint32_t first = args.attend.first_row, log = args.share.log_ranks, kv_heads = args.attend.kv_heads;
    // This rank's splits first, and then others': neighbouring workgroups are on different XCDs, and all have work.
    const uint32_t own = (Min(step.splits(), kLongSplits) + (1u << log) - 1) >> log, places = own << log;
    const uint32_t total = RowsHere(step, first, args.attend.row_count) * kv_heads * places;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t place = t % places, unit = t / places;
      OneUnit(step, first + unit / kv_heads, unit % kv_heads, log == 0 ? place : place % own, place / own, arena);
    }
    if constexpr (!kFar) {
      MergeHere<kValueDim>::template Run<Args, Longer>(workers - 1 - worker, workers, arena);
    }
  }
  struct Longer {
    DEVICE static uint32_t Of(const AttendArgs&, uint32_t position) { return LongSplits(position); }
  };

  // Of the splits of rank `behind` after this one, split `place`; without others that is all.
  DEVICE static void OneUnit(const StepView& step, uint32_t row, uint32_t head, uint32_t place, uint32_t behind,
                             Arena arena) {
    const StepView::Place at = step.place(row);
    if constexpr (kFar) {
      if (place < FarSplits(at.position, Near())) OneSplit(step, at, row, head, place, false, arena);
      return;
    }
    const AttendShare share = ReadArgumentsAgain<Args>().share;
    const uint32_t log = share.log_ranks, position = at.position;
    const uint32_t split = log == 0 ? place : (place << log) + ((share.rank + behind) & ((1u << log) - 1));
    const bool shared = IsShared(share, position);
    if (split >= LongSplits(position) || (shared && behind != 0)) return;
    OneSplit(step, at, row, head, split, shared, arena);
  }

  // The queries that are asked: this rank's, or those of all that hold the head, with fewer splits each.
  DEVICE static AttendArgs AskedOf(const Args& args, bool shared) {
    AttendArgs asked = args.attend;
    if (shared) {
      asked.heads <<= args.share.log_ranks;
      asked.group <<= args.share.log_ranks;
      asked.qkv = {args.share.queries.address};
      asked.q_stride = asked.heads * kHeadDim;
      asked.max_splits >>= args.share.log_ranks;
    }
    return asked;
  }

  DEVICE static NearTokens Near() {
    const AttendArgs args = ReadArgumentsAgain<Args>().attend;
    return {args.window, args.kept};
  }

  // A wave's tokens of a split: 32 from `token` on, and as many of each block behind, below `end`; the first and the last
  // that are seen.
  struct Span {
    uint32_t token, end, position, seen = 0;
    DEVICE bool more() const { return token + kSplitTokens < end; }
    // That of so many groups on, or of the last.
    DEVICE uint32_t Later(uint32_t groups) const {
      const uint32_t last = token + (end - 1 - token) / kSplitTokens * kSplitTokens;
      return Min(token + groups * kSplitTokens, last);
    }
    DEVICE bool goes_on() const {  // with 32 tokens
      return token < end && token + 2 * kPageTokens <= position + 1 && (!kFar || token >= seen);
    }
    DEVICE uint32_t from_seen(uint32_t at) const { return kFar ? at - seen : at; }
  };
  // Which pages: of a group, the same number in every lane. The second page may not exist, then its tokens lie
  // beyond the row's position.
  struct Numbers {
    uint32_t a, b;
    DEVICE void Load(Global<const uint32_t> pages, uint32_t token, uint32_t position) {
      const uint32_t page = token / kPageTokens;
      a = pages[page];
      b = pages[token + kPageTokens <= position ? page + 1 : page];
    }
  };

  DEVICE static void OneSplit(const StepView& step, const StepView::Place& at, uint32_t row, uint32_t head,
                              uint32_t split, bool shared, Arena arena) {
    const AttendArgs args = AskedOf(ReadArgumentsAgain<Args>(), shared);
    const NearTokens near = {args.window, args.kept};
    const uint32_t position = kFar ? LastFar(at.position, near) : at.position;
    const uint32_t tokens = (kFar ? FarSplitBlocks(position) : LongSplitBlocks(position)) * kSplitTokens;
    const uint32_t first = split * tokens;
    Span span = {first + WaveId() * 2 * kPageTokens, Min(first + tokens, position + 1), position};
    if constexpr (kFar) span.seen = near.kept;
    Running<kValueDim> run;
    if (span.token < span.end) {
      Stream stream(args, step.words(at.pages) + args.tables_at, head, span);
      SplitEight query[Block::kSteps];
      Block::LoadQueries(args, row, head, query, run);
      if constexpr (kAhead) {
#pragma clang loop unroll(disable)
        while (span.goes_on()) stream.template Group<true>(span, query, run);
      }
#pragma clang loop unroll(disable)
      while (span.token < span.end) stream.template Group<false>(span, query, run);
    }
    const Args all = ReadArgumentsAgain<Args>();
    const AttendArgs again = AskedOf(all, shared);
    const uint32_t place = shared ? split >> all.share.log_ranks : split;
    const uint32_t parts = kFar ? NearParts(at.position, {again.window, again.kept}) : LongSplits(position);
    typename Block::Unit unit = {row, head, place, parts, again.group, {}};
    if constexpr (!kFar) {
      if (all.here.words.address != 0) unit.words = PartWords(all.here, step);
    }
    Block::Finish(again, unit, run, arena);
  }

  // K and V of the groups that are next, on their way, and the numbers of the pages behind.
  struct Stream {
    Global<uint8_t> kv;
    Global<const uint32_t> pages;
    uint32_t page_heads, head;  // the latter of the cache
    PageOf a, b;
    typename Block::Keys key_a, key_b;
    typename Block::Values values;
    Numbers ahead;

    DEVICE Stream(const AttendArgs& args, Global<const uint32_t> list, uint32_t of, const Span& span)
        : kv(At(Address<uint8_t>{args.kv.address})), pages(list), page_heads(args.page_heads), head(PageHead(args, of)) {
      ahead.Load(pages, span.token, span.position);
      Turn();
      ahead.Load(pages, span.Later(1), span.position);
      KeepOrder();
      if constexpr (kAhead) {
        key_a.Load(a, 0);
        key_b.Load(b, 0);
        values.Load(a, b, 0);
        KeepOrder();
      }
    }
    DEVICE void Turn() {
      a = PageAt<kFormat, kHeadDim, kValueDim>(kv, Uniform(ahead.a), page_heads, head);
      b = PageAt<kFormat, kHeadDim, kValueDim>(kv, Uniform(ahead.b), page_heads, head);
    }

    // Attends to the group of `span`, and steps to the next.
    template <bool kWhole>
    DEVICE void Group(Span& span, const SplitEight (&query)[Block::kSteps], Running<kValueDim>& run) {
      if constexpr (!kAhead) return InParts(span, query, run);
      Eight score = Block::Join(key_a.Scores(query, 0, f32x4{0, 0, 0, 0}), key_b.Scores(query, 0, f32x4{0, 0, 0, 0}));
      if constexpr (kFp8Key) Times<kWhole>(score, key_a.multipliers, key_b.multipliers);
      // Numbers of pages before what lies in them: loads come back in order, and who waits for numbers would wait for
      // that, too. And where there are no more, the last ones again: behind a branch that may have asked or not, who
      // waits for one load waits for all.
      Turn();
      ahead.Load(pages, span.Later(2), span.position);
      KeepOrder();
      key_a.Load(a, 0);
      key_b.Load(b, 0);
      KeepOrder();
      Block::template Weigh<kWhole>(span.from_seen(span.token), span.from_seen(span.position), score, run);
      if constexpr (kFp8Value) Times<kWhole>(score, values.multipliers_a, values.multipliers_b);
      constexpr uint32_t kAll = 0xffffffff;
      const u32x4 real = kWhole ? u32x4{kAll, kAll, kAll, kAll} : Block::RealTokens(span.from_seen(span.token), span.from_seen(span.position));
      if constexpr (kFp4Value) {
        Block::template AddFp4Values<kWhole>(values, 0, Block::TurnWeights(score), real, run);
      } else {
        Block::AddValues(values, 0, Split(score), real, run);
      }
      values.Load(a, b, 0);
      span.token += kSplitTokens;
      KeepOrder();
    }
    DEVICE void InParts(Span& span, const SplitEight (&query)[Block::kSteps], Running<kValueDim>& run) {
      typename Block::Parts parts(a, b);
      parts.AskFirst();
      const typename Block::Tokens own = {span.from_seen(span.token), span.from_seen(span.position)};
      Block::Group(parts, own, own, query, run);
      const bool more = span.more();
      span.token += kSplitTokens;
      if (!more) return;
      Turn();
      if (span.more()) ahead.Load(pages, span.token + kSplitTokens, span.position);
    }
    template <bool kWhole>
    DEVICE static void Times(Eight& x, f32x4 low, f32x4 high) {
      if constexpr (!kWhole) return Block::Times(x, low, high);
      const Eight scale = Block::Join(low, high);
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) x.at[i] *= scale.at[i];
    }
  };
};

template <uint32_t kCount>
struct FloatsOf {
  using Type = f32x4;
  static_assert(kCount == 4);
};
template <>
struct FloatsOf<1> {
  using Type = float;
};

// MergeSplits, to the bit, of no more than kLongSplits splits: a thread has one chain of kEach columns, and all that it
// takes is asked for at once. One column where heads are few, so that every compute unit has some; four where
// they are many, so that lines of what splits left are read once, and a head's scores by few workgroups.
template <uint32_t kEach>
struct LongMerge {
  using Args = AttendMergeArgs;
  using Values = typename FloatsOf<kEach>::Type;  // of neighbouring columns
  static constexpr uint32_t kGroups = kLongMergeColumns, kColumns = kGroups * kEach, kChains = kMergeChains;
  static_assert(kChains * kGroups == kThreads);
  static constexpr uint32_t kOwn = kLongSplits / kChains;     // splits of a chain
  static constexpr uint32_t kPeaks = kLongSplits / kThreads;  // scores and sums of a thread
  static constexpr uint32_t kSumsAt = kLongSplits * 4, kChainsAt = kSumsAt + kThreads * kEach * 4;
  static constexpr uint32_t kLdsBytes = kChainsAt + MergeChains::kBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t slices = args.head_dim / kColumns, units = args.heads * slices;
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * units;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = args.first_row + t / units, unit = t % units;
      const uint32_t splits = LongSplits(step.position(row));
      if (splits > 1) OneSlice(args, row, unit / slices, unit % slices * kColumns, splits, arena);
    }
  }

  // This thread's chain, of columns from `begin` on, is in its place of the LDS behind this, and in what it gives, and
  // in MergeChains what they make together; a barrier is still to come. `parts`: of the row's head. Only chains c with
  // c % ranks = rank are made here, of every ranks-th split, which alone are there.
  DEVICE static Values Chains(Global<const float> parts, uint32_t hd, uint32_t begin, uint32_t splits, uint32_t log_ranks,
                              uint32_t rank, Arena arena) {
    const uint32_t column = AttendPartFloats(hd), mask = (1u << log_ranks) - 1;
    const uint32_t chain = ThreadId() / kGroups, in_slice = ThreadId() % kGroups * kEach;
    // A thread whose chain is made elsewhere looks at what a neighbour does.
    const uint32_t near = (chain & ~mask) | rank, near_peak = (ThreadId() & ~mask) | rank;
    const bool none = splits <= rank;
    const uint32_t last = none ? rank : rank + ((splits - 1 - rank) & ~mask);  // of those that are made here
    f32x2 peaks[kPeaks];  // the largest score, the sum
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPeaks; ++i) {
      const uint32_t s = Min(near_peak + i * kThreads, last) >> log_ranks;
      peaks[i] = *reinterpret_cast<Global<const f32x2>>(parts + (s * column + hd));
    }
    Values values[kOwn];
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kOwn; ++k) {
      const uint32_t at = (Min(near + k * kChains, last) >> log_ranks) * column + begin + in_slice;
      values[k] = *reinterpret_cast<Global<const Values>>(parts + at);
    }
    KeepOrder();
    const Lds<float> shares = arena.Get<float>(), sums = arena.Get<float>(kSumsAt);
    const MergeChains chains(arena, kChainsAt);
    float largest = -1e30f;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPeaks; ++i) {
      const float peak = peaks[i][0];
      if (near_peak + i * kThreads < splits) largest = __builtin_fmaxf(largest, peak);
    }
    largest = chains.Largest(largest);
    float total = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPeaks; ++i) {
      const bool real = near_peak + i * kThreads < splits;
      const float peak = peaks[i][0], sum = peaks[i][1];
      const float share = real ? Exp(peak - largest) : 0.0f;
      if (real) total = Fma(sum, share, total);
      shares[ThreadId() + i * kThreads] = share;
    }
    chains.Keep(largest, chains.Sum(total));  // with a barrier, behind which shares are there
    Values o = {};
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kOwn; ++k) {
      const Values value = none ? Values{} : values[k];  // what nobody has left is no number
      const float share = shares[near + k * kChains];
      if constexpr (kEach == 1) {
        o = Fma(value, share, o);
      } else {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kEach; ++i) o[i] = Fma(value[i], share, o[i]);
      }
    }
    *reinterpret_cast<Lds<Values>>(sums + ThreadId() * kEach) = o;
    return o;
  }

  DEVICE static void OneSlice(const Args& args, uint32_t row, uint32_t head, uint32_t begin, uint32_t splits,
                              Arena arena) {
    const Global<const float> parts = At(args.parts) + (uint64_t{row - args.first_row} * args.heads + head) *
                                                           args.max_splits * AttendPartFloats(args.head_dim);
    Chains(parts, args.head_dim, begin, splits, 0, 0, arena);
    BarrierLds();
    if (ThreadId() < kColumns) {
      const MergeChains chains(arena, kChainsAt);
      const Lds<const float> sums = arena.Get<float>(kSumsAt) + ThreadId();
      StoreMerged(args, row, head, head * args.head_dim + begin + ThreadId(), chains.Together(sums, kColumns));
    }
    BarrierLds();
  }
};
using AttendLongMerge = LongMerge<1>;
using AttendLongMergeWide = LongMerge<kWideMergeColumns / kLongMergeColumns>;

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_LONG_H_
