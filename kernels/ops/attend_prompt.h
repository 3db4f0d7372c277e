// SPDX-License-Identifier: MIT
//
// Attention of prompts: whole blocks of neighbouring rows of one sequence, to the bit what ops/attention.h and
// ops/attend_merge.h make of each. A wave has two tiles of rows side by side as columns of the matrix instructions, and all
// of their tokens: nothing is left for a merge. What splits and chains of splits are multiplied by rests on the largest
// score of all, so scores are made twice: first for the largest of each chain, then for the weights.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_PROMPT_H_
#define MAINARCH_KERNELS_OPS_ATTEND_PROMPT_H_

#include "kernels/ops/attention.h"

namespace mainarch::kernels {

template <uint32_t kHeadDim>
struct AttendPrompt {
  using Args = AttendArgs;
  using One = Attend<KvFormat::kBF16, kHeadDim, kHeadDim, false>;
  static constexpr uint32_t kSteps = kHeadDim / 32, kTiles = kHeadDim / 16;
  static constexpr uint32_t kGroups = kWaves;          // of 32 tokens, that a split has: each was a wave's
  static constexpr uint32_t kSides = kPromptTiles / kWaves;  // tiles of rows of a wave
  static constexpr uint32_t kSplitPages = kSplitTokens / kPageTokens;
  // Of each wave and side [16 chains][16 columns] largest scores, and of the chain at hand [16 splits][16 columns] sums.
  static constexpr uint32_t kOfSide = kMergeChains * kMaxGroup;  // floats
  static constexpr uint32_t kLdsBytes = 2 * kWaves * kSides * kOfSide * 4;
  static_assert(kSplitTokens == kGroups * 32 && kMergeChains * kMergeChains * 2 * kSplitTokens >= 65536);

  // Heads first, as in AttendTall; the longest blocks before shorter ones.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t each = args.run_rows, rows = RowsHere(step, args.first_row, args.row_count);
    const uint32_t blocks = CeilDiv(rows, each), total = blocks * args.kv_heads;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t before = t / args.kv_heads, at = (blocks - 1 - before) * each, count = Min(rows - at, each);
      if (!IsOneRun(step, args.first_row + at, count)) continue;
      const uint32_t own = each / kWaves, from = WaveId() * own;
      if (from < count) Wave(args.first_row + at + from, Min(count - from, own), t - before * args.kv_heads, arena);
    }
  }

 private:
  // Of a side, what a lane knows of its column: the row, its position, the query head of the group's.
  struct Column {
    uint32_t row, position, head;
    bool real;
  };
  struct Keys {
    u32x4 a[kSteps], b[kSteps];
  };
  struct Values {
    u32x4 of[kGroups];
  };
  // In which order splits come: those of a chain one after another. Which one, and of its chain which.
  struct Turn {
    uint32_t split, index;
    DEVICE bool Last(uint32_t splits) const { return split + kMergeChains >= splits; }
    DEVICE Turn Next(uint32_t splits) const {
      if (!Last(splits)) return {split + kMergeChains, index + 1};
      return {split % kMergeChains + 1, 0};
    }
  };
  // A sequence's pages of one key head. Numbers of a split's pages come by lanes, long before they are used.
  struct Pages {
    Global<const uint32_t> table;
    Global<uint8_t> kv;
    uint32_t page_heads, head, last;

    DEVICE uint32_t Numbers(uint32_t split) const {
      return table[Min(split * kSplitPages + LaneId() % kSplitPages, last)];
    }
    DEVICE Page<KvFormat::kBF16, kHeadDim> At(uint32_t numbers, uint32_t i) const {
      return PageAt<KvFormat::kBF16, kHeadDim, kHeadDim>(kv, ReadLane(numbers, i), page_heads, head);
    }
    DEVICE void Ask(uint32_t numbers, uint32_t group, Keys& keys) const {
      const auto a = At(numbers, 2 * group), b = At(numbers, 2 * group + 1);
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSteps; ++s) {
        keys.a[s] = Load16(a.k(0), (s * 16 + LaneRow()) * 4 + LanePart());
        keys.b[s] = Load16(b.k(0), (s * 16 + LaneRow()) * 4 + LanePart());
      }
    }
    // Elements 16 t and on of all the split's tokens.
    DEVICE void Ask(uint32_t numbers, uint32_t t, Values& values) const {
#pragma clang loop unroll(full)
      for (uint32_t g = 0; g < kGroups; ++g) {
        const uint32_t at = (t * 16 + LaneRow()) * 4 + LanePart();
        const u32x2 a = reinterpret_cast<Global<const u32x2>>(At(numbers, 2 * g).v(0))[at];
        const u32x2 b = reinterpret_cast<Global<const u32x2>>(At(numbers, 2 * g + 1).v(0))[at];
        values.of[g] = u32x4{a[0], a[1], b[0], b[1]};
      }
    }
  };
  // What a wave has of a side.
  struct Side {
    SplitEight query[kSteps];
    f32x4 o[kTiles] = {}, chain[kTiles] = {};
    float largest = -1e30f, total = 0;     // of all splits
    float of_chain;                        // the largest score of the chain at hand
    SplitEight weights[kGroups];           // of a split
    float peaks[kGroups], sums[kGroups], shares[kGroups];
    float share;                           // of the split in its chain
  };
  struct Work {
    Pages pages;
    Side side[kSides];
    Column column[kSides];
    uint32_t first, last, splits;  // positions of the wave's first row and its last one
    Lds<float> peaks, sums;

    // Whether all rows see all tokens of a split.
    DEVICE bool Whole(uint32_t split) const { return (split + 1) * kSplitTokens <= first + 1; }
    DEVICE Lds<float> At(Lds<float> from, uint32_t s, uint32_t index) const {
      return from + s * kOfSide + index * kMaxGroup + LaneRow();
    }
  };

  DEVICE static void Wave(uint32_t row, uint32_t count, uint32_t head, Arena arena) {
    const Args args = ReadArgumentsAgain<Args>();
    const StepView step(args.step);
    const StepView::Place place = step.place(row);
    Work work;
    work.first = Uniform(place.position);
    work.last = work.first + count - 1;
    work.splits = work.last / kSplitTokens + 1;
    work.pages = {step.words(Uniform(place.pages)) + args.tables_at, kernels::At(Address<uint8_t>{args.kv.address}), args.page_heads,
                  PageHead(args, head), work.last / kPageTokens};
    work.peaks = arena.Get<float>() + WaveId() * kSides * kOfSide;
    work.sums = work.peaks + kWaves * kSides * kOfSide;
    const uint32_t rows = kMaxGroup / args.group;
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSides; ++s) {
      const uint32_t column = Min(LaneRow(), rows * args.group - 1), r = column / args.group;
      const uint32_t i = Min(s * rows + r, count - 1);
      work.column[s] = {row + i, work.first + i, head * args.group + (column - r * args.group),
                        s * rows + r < count && LaneRow() < rows * args.group};
      const Global<const float> q =
          At(args.qkv) + uint64_t{work.column[s].row} * args.q_stride + work.column[s].head * kHeadDim;
      Running<kHeadDim> none;
      One::SplitQueries(args, [=](uint32_t k) { return LoadStep(q, k); }, work.side[s].query, none);
    }
    Walk<FindLargest>(work);
    Walk<AddAll>(work);
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSides; ++s) Store(ReadArgumentsAgain<Args>(), work.side[s], work.column[s]);
  }

  DEVICE static Eight Scores(const Keys& keys, const Side& side) {
    f32x4 a = {0, 0, 0, 0}, b = {0, 0, 0, 0};
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSteps; ++s) {
      a = One::Product(keys.a[s], side.query[s], a);
      b = One::Product(keys.b[s], side.query[s], b);
    }
    return One::Join(a, b);
  }
  // `token`: the group's first one.
  DEVICE static void Mask(uint32_t token, uint32_t position, Eight& score) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t at = token + i / 4 * kPageTokens + LanePart() * 4 + i % 4;
      if (at > position) score.at[i] = -__builtin_inff();
    }
  }
  DEVICE static float Largest(const Eight& score, float largest) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) largest = __builtin_fmaxf(largest, score.at[i]);
    return largest;
  }

  // A pass over all splits, chain after chain: what it does before a chain, with a split, and behind a chain.
  template <class Pass>
  DEVICE static void Walk(Work& work) {
    Turn turn = {0, 0};
    uint32_t numbers = work.pages.Numbers(0);
    Keys keys[2];
    work.pages.Ask(numbers, 0, keys[0]);
    for (uint32_t i = 0; i < work.splits; ++i) {
      const Turn next = turn.Next(work.splits);
      const uint32_t next_numbers = work.pages.Numbers(next.split);
      if (turn.index == 0) Pass::Begin(work, turn);
      if (work.Whole(turn.split)) {
        Pass::template Split<true>(work, turn, numbers, next_numbers, keys);
      } else {
        Pass::template Split<false>(work, turn, numbers, next_numbers, keys);
      }
      if (turn.Last(work.splits)) Pass::End(work, turn);
      turn = next;
      numbers = next_numbers;
    }
  }

  // The largest score of each chain, and of all.
  struct FindLargest {
    DEVICE static void Begin(Work& work, Turn) {
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSides; ++s) work.side[s].of_chain = -1e30f;
    }
    template <bool kWhole>
    DEVICE static void Split(Work& work, Turn turn, uint32_t numbers, uint32_t next, Keys (&keys)[2]) {
#pragma clang loop unroll(full)
      for (uint32_t g = 0; g < kGroups; ++g) {
        work.pages.Ask(g + 1 == kGroups ? next : numbers, (g + 1) % kGroups, keys[(g + 1) % 2]);
        KeepOrder();
#pragma clang loop unroll(full)
        for (uint32_t s = 0; s < kSides; ++s) {
          Eight score = Scores(keys[g % 2], work.side[s]);
          if (!kWhole) Mask(turn.split * kSplitTokens + g * 32, work.column[s].position, score);
          work.side[s].of_chain = Largest(score, work.side[s].of_chain);
        }
      }
    }
    DEVICE static void End(Work& work, Turn turn) {
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSides; ++s) {
        Side& side = work.side[s];
        const float largest = ColumnMax(side.of_chain);
        *work.At(work.peaks, s, turn.split % kMergeChains) = largest;
        side.largest = __builtin_fmaxf(side.largest, largest);
      }
    }
  };
  struct AddAll {
    DEVICE static void Begin(Work& work, Turn turn) {
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSides; ++s) work.side[s].of_chain = *work.At(work.peaks, s, turn.split % kMergeChains);
    }
    template <bool kWhole>
    DEVICE static void Split(Work& work, Turn turn, uint32_t numbers, uint32_t next, Keys (&keys)[2]) {
      AddSplit<kWhole>(work, turn, numbers, next, keys);
    }
    DEVICE static void End(Work& work, Turn turn) {
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSides; ++s) AddChain(work, s, turn.index + 1);
    }
  };

  template <bool kWhole>
  DEVICE static void AddSplit(Work& work, Turn turn, uint32_t numbers, uint32_t next, Keys (&keys)[2]) {
    const uint32_t begin = turn.split * kSplitTokens;
    Values values[3];
    Eight scores[kSides][2];
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      if (g + 1 < kGroups) {
        work.pages.Ask(numbers, g + 1, keys[(g + 1) % 2]);
      } else {
        work.pages.Ask(numbers, 0, values[0]);
      }
      KeepOrder();
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSides; ++s) {
        scores[s][g % 2] = Scores(keys[g % 2], work.side[s]);
        if (!kWhole) Mask(begin + g * 32, work.column[s].position, scores[s][g % 2]);
        if (g > 0) Weigh(scores[s][(g - 1) % 2], work.side[s], g - 1);
      }
    }
    work.pages.Ask(numbers, 1, values[1]);
    KeepOrder();
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSides; ++s) {
      Weigh(scores[s][(kGroups - 1) % 2], work.side[s], kGroups - 1);
      Join(work, s, turn.index);
    }
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      if (t + 2 < kTiles) work.pages.Ask(numbers, t + 2, values[(t + 2) % 3]);
      if (t + 2 == kTiles) work.pages.Ask(next, 0, keys[0]);
      KeepOrder();
      Values& of = values[t % 3];
      if (!kWhole) {
#pragma clang loop unroll(full)
        for (uint32_t g = 0; g < kGroups; ++g) of.of[g] &= One::RealTokens(begin + g * 32, work.last);
      }
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSides; ++s) AddValues(of, work.side[s], t);
    }
  }
  // Of a group: its weights, their sum, the largest score.
  DEVICE static void Weigh(Eight score, Side& side, uint32_t g) {
    const float now = __builtin_fmaxf(-1e30f, ColumnMax(Largest(score, -__builtin_inff())));
    float sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      score.at[i] = Exp(score.at[i] - now);
      sum += score.at[i];
    }
    side.peaks[g] = now;
    side.sums[g] = sum;
    side.weights[g] = Split(score);
  }
  // Of a split: what its groups are to be multiplied by, as Attend::Joined has it; and the split in its chain.
  DEVICE static void Join(Work& work, uint32_t s, uint32_t index) {
    Side& side = work.side[s];
    float most = side.peaks[0];
#pragma clang loop unroll(full)
    for (uint32_t g = 1; g < kGroups; ++g) most = __builtin_fmaxf(most, side.peaks[g]);
    float all = 0;
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      side.shares[g] = Exp(side.peaks[g] - most);
      all = Fma(ColumnSum(side.sums[g]), side.shares[g], all);
    }
    side.share = Exp(most - side.of_chain);
    // MergeSplits has one thread for splits that are kThreads apart.
    const Lds<float> sum = work.At(work.sums, s, index % kMergeChains);
    *sum = index < kMergeChains ? all * side.share : Fma(all, side.share, *sum);
  }
  DEVICE static void AddValues(const Values& values, Side& side, uint32_t t) {
    f32x4 of_split = {0, 0, 0, 0};
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      const f32x4 o = One::Product(values.of[g], side.weights[g], f32x4{0, 0, 0, 0});
      of_split = FmaFour(o, side.shares[g], of_split);
    }
    side.chain[t] = FmaFour(of_split, side.share, side.chain[t]);
  }
  DEVICE static f32x4 FmaFour(f32x4 x, float by, f32x4 to) {
    return __builtin_elementwise_fma(x, f32x4{by, by, by, by}, to);
  }
  // A chain of so many splits is added to those before it: sums in the tree of MergeChains::Sum.
  DEVICE static void AddChain(Work& work, uint32_t s, uint32_t count) {
    Side& side = work.side[s];
    const uint32_t sums = Min(count, kMergeChains);
    const auto sum = [&](uint32_t i) __attribute__((always_inline)) {
      const float x = *work.At(work.sums, s, Min(i, sums - 1));
      return i < sums ? x : 0.0f;
    };
    float all = 0;
    for (uint32_t w = 0; w < kMergeChains && w < sums; w += 4) {
      all += (sum(w) + sum(w + 1)) + (sum(w + 2) + sum(w + 3));
    }
    const float share = Exp(side.of_chain - side.largest);
    side.total = Fma(all, share, side.total);
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      side.o[t] = FmaFour(side.chain[t], share, side.o[t]);
      side.chain[t] = f32x4{0, 0, 0, 0};
    }
  }

  DEVICE static void Store(const Args& args, Side& side, const Column& column) {
    if (!column.real) return;
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < 4; ++r) {
        MergeChains::Merged all = {side.o[t][r], side.largest, side.total};
        StoreMerged(args, column.row, column.head, column.head * kHeadDim + 16 * t + 4 * LanePart() + r, all);
      }
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_PROMPT_H_
