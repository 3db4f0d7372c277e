// SPDX-License-Identifier: MIT
//
// What attention's launch does of few rows beside attending (decoder_args.h, AttendHere): before it makes their heads,
// behind it merges what splits have left.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_HERE_H_
#define MAINARCH_KERNELS_OPS_ATTEND_HERE_H_

#include "kernels/ops/attend_merge.h"
#include "kernels/ops/prepare.h"
#include "kernels/ops/told.h"

namespace mainarch::kernels {

// ---- before ----

// Where a product beside this launch makes the heads (ToldWords), what does not depend on it is done before it is waited
// for. Its workgroups, which wait for nobody, have been dealt out before these.
//
// Every workgroup makes the queries that it asks with; the one whose split has the row's own token appends K and V too.
// Of one row nobody else reads the page that these go to: a row's splits are whole pages apart. Several rows of a sequence
// read pages that all of them append to: who reads a page with new tokens waits until those of all rows are there. A
// workgroup has one unit then: with two it could wait for what it is to append itself.
template <KvFormat kFormat, uint32_t kHeadDim>
struct HeadsHere {
  using Heads = Prepare<kFormat, kHeadDim>;
  static constexpr uint32_t kQueryStride = kHeadDim + 4;  // floats, so that columns lie in other banks
  static constexpr uint32_t kLdsBytes = kMaxGroup * kQueryStride * 4;

  DEVICE static uint32_t Rows() {
    const AttendArgs args = ReadArgumentsAgain<AttendOnceArgs>().attend;
    return RowsHere(StepView(args.step), args.first_row, args.row_count);
  }
  // By a wave that has appended, where there are several rows.
  DEVICE static void TellRow(uint32_t row, uint32_t kv_head) {
    const Appended appended(kv_head);
    if (appended.alone) return;
    FenceRelease<Scope::kDevice>();
    if (LaneId() == 0) StoreFlag<Scope::kDevice>(appended.words + (row * 2 + WaveId()), TaggedWord(appended.tag, 0));
  }
  // By a wave, where there are several rows, until K and V of all are there.
  DEVICE static void AwaitRows(uint32_t kv_head) {
    const Appended appended(kv_head);
    if (appended.alone) return;
    const Global<const uint64_t> own = appended.words + Min(LaneId(), Rows() * 2 - 1);
    while (Ballot(OtherTag(LoadFlag<Scope::kDevice>(own), appended.tag) != 0) != 0) Pause();
    FenceAcquire<Scope::kDevice>();
  }
  // Of a key head, [kToldRows][2].
  struct Appended {
    bool alone;  // of one row there are none
    uint32_t tag;
    Global<uint64_t> words;
    DEVICE explicit Appended(uint32_t kv_head) {
      const AttendOnceArgs all = ReadArgumentsAgain<AttendOnceArgs>();
      alone = all.here.appended_at == 0;
      tag = LaunchTag(StepView(all.attend.step).index(), all.here.turn, all.here.turns);
      words = At(all.here.words) + (all.here.appended_at + kernels::AppendedWords(1) * kv_head);
    }
  };

  // Queries of the group to the LDS, [group][kQueryStride].
  DEVICE static void Make(const StepView::Place& place, uint32_t row, uint32_t kv_head, bool owns, Arena arena) {
    if (owns && WaveId() < 2) {
      KeyOrValue(place, row, kv_head);
      TellRow(row, kv_head);
    }
    Queries(place, row, kv_head, arena);
    if (owns) {
      Barrier();
    } else {
      BarrierLds();
    }
  }

  DEVICE static PrepareArgs Again() { return ReadArgumentsAgain<AttendOnceArgs>().prepare; }

  // The first wave has K, the second one V.
  DEVICE static void KeyOrValue(const StepView::Place& place, uint32_t row, uint32_t kv_head) {
    const PrepareArgs args = Again();
    const uint32_t head = args.heads + WaveId() * args.kv_heads + kv_head;
    const typename Heads::Ahead ahead = Heads::AskAhead(args, place, head);
    const RowFactor factor(args.norm, row, true);
    typename Heads::Sums sums;
    Take<1>(row, {head}, &sums);
    typename Heads::Head x = sums.Of(args.splits);
    Heads::Scale(factor.Value(args.norm), x);
    const PrepareArgs again = Again();
    const bool is_value = WaveId() != 0;
    Heads::Finish(again, head, is_value, ahead, x);
    Heads::AppendHead(again, kv_head, is_value, ahead, x);
  }

  // A wave has every fourth query, two at once; what they want beside their sums is the same.
  DEVICE static void Queries(const StepView::Place& place, uint32_t row, uint32_t kv_head, Arena arena) {
    const PrepareArgs args = Again();
    const typename Heads::Ahead ahead = Heads::AskAhead(args, place, 0);
    const RowFactor factor(args.norm, row, true);
#pragma clang loop unroll(disable)
    for (uint32_t i = Uniform(WaveId()); i < Group(); i += 2 * kWaves) {
      const uint32_t first = kv_head * Group(), next = Min(i + kWaves, Group() - 1);
      typename Heads::Sums sums[2];
      Take<2>(row, {first + i, first + next}, sums);
      const PrepareArgs own = Again();
      const float by = factor.Value(own.norm);
      Query(i, kv_head, ahead, by, sums[0].Of(own.splits), arena);
      if (i + kWaves < Group()) Query(i + kWaves, kv_head, ahead, by, sums[1].Of(own.splits), arena);
    }
  }
  // What the product has left of kCount heads, as soon as it is there.
  template <uint32_t kCount>
  struct HeadsOf {
    uint32_t at[kCount];
  };
  template <uint32_t kCount>
  DEVICE static void Take(uint32_t row, HeadsOf<kCount> heads, typename Heads::Sums* sums) {
    const AttendOnceArgs all = ReadArgumentsAgain<AttendOnceArgs>();
    const PrepareArgs& args = all.prepare;
    if (all.told.words.address == 0) {
#pragma clang loop unroll(full)
      for (uint32_t h = 0; h < kCount; ++h) sums[h] = typename Heads::Sums(args, row, heads.at[h]);
      KeepOrder();
      return;
    }
    const ToldSums told(all.told, StepView(args.step).index(), args.stride);
    const Global<const uint64_t> of_row = told.Of(0, row, 0);
    // A head that lies in one chunk begins at an even column: places within it are the same for all such heads.
    constexpr bool kInChunk = kRowChunk % kHeadDim == 0;
    static_assert(Heads::kLanes % 2 == 0);
    uint32_t own[kCount][Heads::kHeld];
#pragma clang loop unroll(full)
    for (uint32_t h = 0; h < kCount; ++h) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < Heads::kHeld; ++j) {
        own[h][j] = kInChunk ? ToldPlace(Heads::Place()) + j * Heads::kLanes / 2
                             : ToldPlace(heads.at[h] * kHeadDim + Heads::Place() + j * Heads::kLanes);
      }
    }
    while (true) {
      uint64_t words[kCount][kMaxSplits][Heads::kHeld];
#pragma clang loop unroll(full)
      for (uint32_t h = 0; h < kCount; ++h) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kMaxSplits; ++i) {
          const uint32_t head = kInChunk ? ToldPlace(heads.at[h] * kHeadDim) : 0;
          const Global<const uint64_t> first = of_row + Uniform(Min(i, args.splits - 1) * told.apart() + head);
#pragma clang loop unroll(full)
          for (uint32_t j = 0; j < Heads::kHeld; ++j) {
            words[h][i][j] = LoadFlag<Scope::kDevice>(first + own[h][j]);
          }
        }
      }
      KeepOrder();
      uint32_t other = 0;
#pragma clang loop unroll(full)
      for (uint32_t h = 0; h < kCount; ++h) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kMaxSplits; ++i) {
#pragma clang loop unroll(full)
          for (uint32_t j = 0; j < Heads::kHeld; ++j) {
            const uint64_t word = words[h][i][j];
            other |= OtherTag(word, told.tag);
            sums[h].parts[i][j / 2][j % 2] = ValueOf(word);
          }
        }
      }
      if (other == 0) return;
      Pause();
    }
  }
  DEVICE static uint32_t Group() { return ReadArgumentsAgain<AttendOnceArgs>().attend.group; }
  DEVICE static void Query(uint32_t column, uint32_t kv_head, const typename Heads::Ahead& ahead, float by,
                           typename Heads::Head x, Arena arena) {
    Heads::Scale(by, x);
    const Lds<float> to = arena.Get<float>() + column * kQueryStride + Heads::Place();
    Heads::Finish(Again(), kv_head * Group() + column, /*is_value=*/false, ahead, x);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < Heads::kHeld; ++j) {
      if (Heads::Mine()) to[j * Heads::kLanes] = x.at[j];
    }
  }
};

// ---- behind ----

// Where a part of a split goes: words beside `tag`, or plain floats.
struct PartWords {
  uint32_t tag = 0;
  Global<uint64_t> words = nullptr;

  PartWords() = default;
  DEVICE PartWords(const AttendHere& here, const StepView& step)
      : tag(LaunchTag(step.index(), here.turn, here.turns)), words(At(here.words)) {}
  DEVICE void Tell(uint64_t at, float value) const {
    StoreFlag<Scope::kDevice>(words + at, TaggedWord(tag, value));
  }
};

// The merge of rows that have more than one split, to the bit that of attend_merge. A workgroup has told all of its own
// parts before it waits for any, and those that wait are AttendHere::mergers, fewer than have room at once: so all
// others find room.
template <uint32_t kHeadDim>
struct MergeHere {
  static constexpr uint32_t kPeaks = kLongSplits / kThreads;  // splits whose score and sum a thread asks for
  // Columns of a head that a workgroup has: of many splits fewer, so that a thread has fewer of them.
  static constexpr uint32_t kWide = HereWideColumns(kHeadDim), kNarrow = kLongMergeColumns;
  static constexpr uint32_t kSumsAt = kLongSplits * 4, kChainsAt = kSumsAt + kMergeChains * kWide * 4;
  static constexpr uint32_t kLdsBytes = kChainsAt + MergeChains::kBytes;

  // Of a head's words: elements, then the largest score and the sum of each split side by side, which all who merge it
  // ask for: so those are few lines.
  DEVICE static uint32_t ElementAt(uint32_t split, uint32_t d) { return split * kHeadDim + d; }
  DEVICE static uint32_t ScoreAt(uint32_t max_splits, uint32_t split) { return max_splits * kHeadDim + split * 2; }

  // Splits::Of(args, position): of a row. `turn`: of this workgroup among `workers`; the first ones merge. They should be
  // those that are dealt out last and have the fewest units: others would hold their places while thousands still wait for
  // one.
  template <class Args, class Splits>
  DEVICE static void Run(uint32_t turn, uint32_t workers, Arena arena) {
    const AttendHere here = ReadArgumentsAgain<Args>().here;
    if (here.words.address == 0) return;
    const uint32_t mergers = Min(here.mergers, workers);
    if (turn >= mergers) return;
#pragma clang loop unroll(disable)
    for (uint32_t r = 0;; ++r) {
      const AttendArgs args = ReadArgumentsAgain<Args>().attend;
      const StepView step(args.step);
      if (r >= RowsHere(step, args.first_row, args.row_count)) return;
      const uint32_t splits = Splits::Of(args, step.position(args.first_row + r));
      const bool wide = splits <= kHereWideSplits;
      const uint32_t slices = splits <= 1 ? 0 : args.heads * (kHeadDim / (wide ? kWide : kNarrow));
#pragma clang loop unroll(disable)
      for (; turn < slices; turn += mergers) {
        if (wide) {
          Slice<Args, kWide>(r, turn, splits, arena);
        } else {
          Slice<Args, kNarrow>(r, turn, splits, arena);
        }
      }
      turn -= slices;
    }
  }

  // A word of splits `first`, first + kApart, ..., kStride words apart; of those that there are not the last one's.
  template <uint32_t kCount, uint32_t kApart, uint32_t kStride>
  struct Words {
    uint64_t at[kCount];
    DEVICE void Ask(Global<const uint64_t> words, uint32_t begin, uint32_t first, uint32_t splits) {
      const Global<const uint8_t> bytes = reinterpret_cast<Global<const uint8_t>>(words);  // the same in all lanes
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < kCount; ++k) {
        const uint32_t from = (Min(first + k * kApart, splits - 1) * kStride + begin) * 8;
        at[k] = LoadFlag<Scope::kDevice>(reinterpret_cast<Global<const uint64_t>>(bytes + from));
      }
    }
    DEVICE bool Here(uint32_t tag) const {
      uint32_t other = 0;
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < kCount; ++k) other |= OtherTag(at[k], tag);
      return other == 0;
    }
    DEVICE float Of(uint32_t k) const { return ValueOf(at[k]); }
  };

  using Scores = Words<kPeaks, kThreads, 2>;

  // Until some split is there that this wave looks at. All that a merge takes are hundreds of lines: whoever asks for them
  // again and again takes the path to memory from those on its compute unit who are waited for.
  DEVICE static void AwaitSome(Global<const uint64_t> scores, uint32_t slice, uint32_t splits, uint32_t tag) {
    const uint32_t split = Uniform((slice * kWaves + WaveId()) * 37 % splits);
    const Global<const uint64_t> score = scores + split * 2;
    while (OtherTag(LoadFlag<Scope::kDevice>(score), tag) != 0) Pause();
  }

  // kWidth columns of a head of place `r` among the launch's rows.
  template <class Args, uint32_t kWidth>
  DEVICE static void Slice(uint32_t r, uint32_t slice, uint32_t splits, Arena arena) {
    constexpr uint32_t kGroups = kThreads / kWidth, kOwn = kMergeChains / kGroups, kSlices = kHeadDim / kWidth;
    // Of a column a thread asks for all that it has, at once: who asks in turns waits for memory as often.
    constexpr uint32_t kBatch = (kWidth == kNarrow ? kLongSplits : kHereWideSplits) / kGroups;
    const uint32_t head = slice / kSlices, group = ThreadId() / kWidth, in_slice = ThreadId() % kWidth;
    const uint32_t column = slice % kSlices * kWidth + in_slice;
    const Lds<float> shares = arena.Get<float>(), sums = arena.Get<float>(kSumsAt);
    const MergeChains chains(arena, kChainsAt);
    const Args args = ReadArgumentsAgain<Args>();
    const PartWords part(args.here, StepView(args.attend.step));
    const Global<const uint64_t> words =
        part.words + (uint64_t{r} * args.attend.heads + head) * args.attend.max_splits * AttendPartFloats(kHeadDim);
    Scores peaks, totals;
    Words<kBatch, kGroups, kHeadDim> values;
    const uint32_t scores = ScoreAt(args.attend.max_splits, 0);
    if constexpr (kWidth == kNarrow) AwaitSome(words + scores, slice, splits, part.tag);
    while (true) {
      const uint32_t thread = MadeBefore(ThreadId());  // or registers would hold all addresses
      peaks.Ask(words, scores, thread, splits);
      totals.Ask(words, scores + 1, thread, splits);
      values.Ask(words, column, thread / kWidth, splits);
      KeepOrder();
      if (peaks.Here(part.tag) && totals.Here(part.tag) && values.Here(part.tag)) break;
      Pause();
    }
    Shares(peaks, totals, splits, shares, chains);
    float o[kOwn] = {};
    static_assert(kBatch % kOwn == 0);
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kBatch; ++k) {  // the share of a split that there is not is zero
      o[k % kOwn] = Fma(values.Of(k), shares[group + k * kGroups], o[k % kOwn]);
    }
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kOwn; ++k) sums[(group + k * kGroups) * kWidth + in_slice] = o[k];
    BarrierLds();
    if (ThreadId() < kWidth) {
      const AttendArgs again = ReadArgumentsAgain<Args>().attend;
      StoreMerged(again, again.first_row + r, head, head * kHeadDim + column, chains.Together(sums + in_slice, kWidth));
    }
    BarrierLds();
  }

  // What each split is to be multiplied by, and MergeChains' part of it. With a barrier behind.
  DEVICE static void Shares(const Scores& peaks, const Scores& totals, uint32_t splits, Lds<float> shares,
                            const MergeChains& chains) {
    float largest = -1e30f;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPeaks; ++i) {
      if (ThreadId() + i * kThreads < splits) largest = __builtin_fmaxf(largest, peaks.Of(i));
    }
    largest = chains.Largest(largest);
    float total = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPeaks; ++i) {
      const bool real = ThreadId() + i * kThreads < splits;
      const float share = real ? Exp(peaks.Of(i) - largest) : 0.0f;
      if (real) total = Fma(totals.Of(i), share, total);
      shares[ThreadId() + i * kThreads] = share;
    }
    chains.Keep(largest, chains.Sum(total));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_HERE_H_
