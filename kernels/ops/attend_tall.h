// SPDX-License-Identifier: MIT
//
// Attention of many rows (prompts): to the bit what ops/attention.h leaves. A workgroup takes one key head, one split and
// neighbouring rows of one sequence, and so K and V of the split once for all of them. As many rows as have room side by
// side are the columns of a matrix instruction, which one row of few query heads would leave empty. Of a cache with a
// window these are the splits that any of the rows sees, and each row has its own mask and its own count of them.
// Of two caches (near_args.h) each has a launch: to the bit what ops/attend_near.h and the far ones of ops/attend_long.h leave.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_TALL_H_
#define MAINARCH_KERNELS_OPS_ATTEND_TALL_H_

#include "kernels/near_args.h"
#include "kernels/ops/attention.h"

namespace mainarch::kernels {

// Which tokens of a cache rows see.
struct SeenTokens {
  uint32_t window = 0;       // 0: none. Splits and groups before it are not a row's
  uint32_t behind = 0;       // so far behind the row's own is its last one,
  uint32_t to = 0xffffffff;  // which is no later than this
  uint32_t from = 0;         // those before are masked. A row whose last one would be before sees none

  // From this position on rows see any.
  DEVICE uint32_t FirstRow() const { return behind + from; }
  // Of the row at a position, the first token that counts, the first one seen, the last one.
  DEVICE uint32_t Counted(uint32_t position) const { return FirstSeen(position, window); }
  DEVICE uint32_t First(uint32_t position) const { return Max(Counted(position), from); }
  DEVICE uint32_t Last(uint32_t position) const { return Min(position - behind, to); }
};

// What a launch is for: places of a block of rows, each a split that is counted from the first that one of them sees; and
// which of a row's parts a split is, of so many. It is none of them where the index is not below the count.
struct SeesAll {
  DEVICE static uint32_t Places(const AttendArgs& args, uint32_t splits, uint32_t rows) {
    return Min(splits, MostSplitsOfRows(args.window, rows));
  }
  DEVICE static SeesAll Of(const AttendArgs&, uint32_t, uint32_t) { return {}; }
  DEVICE uint32_t Split(uint32_t place) const { return place; }
  DEVICE SeenTokens Tokens(const AttendArgs& args) const { return {args.window}; }
  DEVICE RowPart Part(const AttendArgs& args, uint32_t position, uint32_t split) const {
    return {split - FirstSplit(position, args.window), SplitsSeen(position, args.window)};
  }
};
// Of two caches the far tokens, whose splits are one block.
struct SeesFar {
  DEVICE static uint32_t Places(const AttendArgs&, uint32_t splits, uint32_t) { return splits; }
  DEVICE static SeesFar Of(const AttendArgs&, uint32_t, uint32_t) { return {}; }
  DEVICE uint32_t Split(uint32_t place) const { return place; }
  DEVICE SeenTokens Tokens(const AttendArgs& args) const { return {0, args.window, 0xffffffff, args.kept}; }
  DEVICE RowPart Part(const AttendArgs& args, uint32_t position, uint32_t split) const {
    return {split, NearParts(position, {args.window, args.kept})};
  }
};
// The others: of the window, and in the last place those that are kept, which are in one split.
struct SeesNear {
  uint32_t kept;  // 1 or 0: the compiler would keep a bool in memory

  DEVICE static uint32_t Places(const AttendArgs& args, uint32_t splits, uint32_t rows) {
    return SeesAll::Places(args, splits, rows) + (args.kept != 0);
  }
  DEVICE static SeesNear Of(const AttendArgs& args, uint32_t place, uint32_t places) {
    return {args.kept != 0 && place + 1 == places};
  }
  DEVICE uint32_t Split(uint32_t place) const { return kept ? 0 : place; }
  DEVICE SeenTokens Tokens(const AttendArgs& args) const {
    return kept ? SeenTokens{0, args.window, args.kept - 1} : SeenTokens{args.window};
  }
  DEVICE RowPart Part(const AttendArgs& args, uint32_t position, uint32_t split) const {
    const NearTokens near = {args.window, args.kept};
    const uint32_t splits = SplitsSeen(position, near.window), parts = NearParts(position, near);
    const uint32_t own = kept ? splits : split - FirstSplit(position, near.window);
    return {!kept && own >= splits ? parts : FarSplits(position, near) + own, parts};
  }
};

template <KvFormat kFormat, uint32_t kHeadDim, uint32_t kValueDim = kHeadDim, class Sees = SeesAll>
struct AttendTall {
  using Args = AttendArgs;
  using One = Attend<kFormat, kHeadDim, kValueDim, false>;
  static constexpr uint32_t kLdsBytes = One::kFinishBytes;
  // Whether attend_prompt_* may have rows: others have no registers for the question.
  static constexpr bool kAsks = __is_same(Sees, SeesAll) && kFormat == KvFormat::kBF16 && kHeadDim == kValueDim &&
                                (kHeadDim == 64 || kHeadDim == 128);

  // Heads first: so each has a die of its own, where there are as many, whose cache keeps its K and V.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t each = AttendTallRows(args.group), rows = RowsHere(step, args.first_row, args.row_count);
    if (kAsks && AreAllOfPrompt(step, args.run_rows, args.first_row, rows)) return;
    const uint32_t places = Sees::Places(args, step.splits(), each);
    const uint32_t total = CeilDiv(rows, each) * places * args.kv_heads;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t rest = t / args.kv_heads, block = rest / places, place = rest - block * places;
      if (kAsks && IsOfPrompt(step, args.run_rows, args.first_row, rows, args.first_row + block * each)) continue;
      const Sees sees = Sees::Of(args, place, places);
      Block(step, args.first_row + block * each, Min(rows - block * each, each), t - rest * args.kv_heads, sees,
            sees.Split(place), arena);
    }
  }

 private:
  // Rows side by side in a matrix instruction: the first one, its position, and how many.
  struct Tile {
    uint32_t row, position, rows, head, split, group;
  };

  // Runs of rows of one sequence, one behind the other.
  DEVICE static void Block(const StepView& step, uint32_t first, uint32_t count, uint32_t head, Sees sees,
                           uint32_t split, Arena arena) {
    const uint32_t lane = LaneId();
    const StepView::Place own = step.place(first + Min(lane, count - 1));
    for (uint32_t start = 0; start < count;) {
      const StepView::Place place = {ReadLane(own.position, start), ReadLane(own.pages, start)};
      const bool follows = lane >= start && lane < count && own.pages == place.pages &&
                           own.position == place.position + (lane - start);
      const uint64_t others = ~(Ballot(follows) >> start);
      const uint32_t run = others == 0 ? kWave : static_cast<uint32_t>(__builtin_ctzll(others));
      Run(step, place, first + start, run, head, sees, split, arena);
      start += run;
    }
  }
  // The same page. Places of its parts, a pair of registers each, are made of this anew for each tile: kept from before the
  // loop they would be more than there are.
  DEVICE static Global<uint8_t> MadeHere(Global<uint8_t> base) {
    uint64_t at = Uniform(reinterpret_cast<uint64_t>(base));
    __asm__ volatile("" : "+s"(at));
    return reinterpret_cast<Global<uint8_t>>(at);
  }
  // `split`: counted from the first that any of the rows sees.
  DEVICE static void Run(const StepView& step, const StepView::Place& place, uint32_t row, uint32_t count, uint32_t head,
                         Sees sees, uint32_t split, Arena arena) {
    const AttendArgs args = ReadArgumentsAgain<Args>();
    const SeenTokens seen = sees.Tokens(args);
    const uint32_t lowest = Max(place.position, seen.FirstRow());
    if (lowest >= place.position + count) return;
    const uint32_t last = seen.Last(place.position + count - 1), counted = seen.Counted(lowest);
    const uint32_t begin = (counted / kSplitTokens + split) * kSplitTokens;
    if (begin > last) return;
    const uint32_t token = begin + WaveId() * 32, each = kMaxGroup / args.group;
    const bool any = token <= last && token + 32 > counted;
    typename One::PagesOf pages;
    pages.Find(args, step, place, head, any ? token : last, counted, last, true);  // who sees none asks for what there is
    typename One::Parts parts(pages.a, pages.b);
    if constexpr (One::kWhole) parts.AskFirst();
    // Rows before the split's first token do not see it, nor do those whose windows begin behind its last.
    const uint32_t before = Max(lowest, begin + seen.behind) - place.position;
    const uint32_t end = seen.window == 0 ? count : Min(count, begin + kSplitTokens - 1 + seen.window - place.position);
#pragma clang loop unroll(disable)
    for (uint32_t i = before; i < end; i += each) {
      if constexpr (!One::kWhole) {
        pages.a.base = MadeHere(pages.a.base);
        pages.b.base = MadeHere(pages.b.base);
        parts.AskFirst();
      }
      const Tile tile = {row + i, place.position + i, Min(each, end - i), head, token / kSplitTokens, args.group};
      OneTile(tile, sees, parts, token, arena);
    }
  }
  DEVICE static void OneTile(const Tile& tile, Sees sees, typename One::Parts& parts, uint32_t token, Arena arena) {
    const AttendArgs args = ReadArgumentsAgain<Args>();
    const SeenTokens seen = sees.Tokens(args);
    const uint32_t last = seen.Last(tile.position + tile.rows - 1);
    Running<kValueDim> run;
    if (token <= last && token + 32 > seen.Counted(tile.position)) {
      const uint32_t column = Min(LaneRow(), tile.rows * tile.group - 1);
      const uint32_t r = column / tile.group, position = tile.position + r;
      const Global<const float> q = At(args.qkv) + uint64_t{tile.row + r} * args.q_stride +
                                    (tile.head * tile.group + (column - r * tile.group)) * kHeadDim;
      SplitEight query[One::kSteps];
      One::SplitQueries(args, [=](uint32_t s) { return LoadStep(q, s); }, query, run);
      const uint32_t first = seen.First(tile.position), own_first = seen.First(position), own_last = seen.Last(position);
      One::Group(parts, {token - own_first, own_last - own_first}, {token - first, last - first}, query, run);
      if (own_last < token || token + 32 <= seen.Counted(position)) {  // as if the row had not come here
        run.largest = Running<kValueDim>().largest;
        run.unit = 1;
      }
    }
    One::Finish(ReadArgumentsAgain<Args>(), {tile.row, tile.head, tile.split, 0, tile.group, {}, tile.rows, tile.position},
                run, arena, sees);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_TALL_H_
