// SPDX-License-Identifier: MIT
//
// Attention of many rows (prompts): to the bit what ops/attention.h leaves. A workgroup takes one key head, one split and
// neighbouring rows of one sequence, and so K and V of the split once for all of them. As many rows as have room side by
// side are the columns of a matrix instruction, which one row of few query heads would leave empty. Of a cache with a
// window these are the splits that any of the rows sees, and each row has its own mask and its own count of them.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_TALL_H_
#define MAINARCH_KERNELS_OPS_ATTEND_TALL_H_

#include "kernels/ops/attention.h"

namespace mainarch::kernels {

template <KvFormat kFormat, uint32_t kHeadDim, uint32_t kValueDim = kHeadDim>
struct AttendTall {
  using Args = AttendArgs;
  using One = Attend<kFormat, kHeadDim, kValueDim, false>;
  static constexpr uint32_t kLdsBytes = One::kFinishBytes;

  // Heads first: so each has a die of its own, where there are as many, whose cache keeps its K and V.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t each = AttendTallRows(args.group), rows = RowsHere(step, args.first_row, args.row_count);
    const uint32_t splits = Min(step.splits(), MostSplitsOfRows(args.window, each));
    const uint32_t total = CeilDiv(rows, each) * splits * args.kv_heads;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t rest = t / args.kv_heads, block = rest / splits;
      Block(step, args.first_row + block * each, Min(rows - block * each, each), t - rest * args.kv_heads,
            rest - block * splits, arena);
    }
  }

 private:
  // Rows side by side in a matrix instruction: the first one, its position, and how many.
  struct Tile {
    uint32_t row, position, rows, head, split, group;
  };

  // Runs of rows of one sequence, one behind the other.
  DEVICE static void Block(const StepView& step, uint32_t first, uint32_t count, uint32_t head, uint32_t split,
                           Arena arena) {
    const uint32_t lane = LaneId();
    const StepView::Place own = step.place(first + Min(lane, count - 1));
    for (uint32_t start = 0; start < count;) {
      const StepView::Place place = {ReadLane(own.position, start), ReadLane(own.pages, start)};
      const bool follows = lane >= start && lane < count && own.pages == place.pages &&
                           own.position == place.position + (lane - start);
      const uint64_t others = ~(Ballot(follows) >> start);
      const uint32_t run = others == 0 ? kWave : static_cast<uint32_t>(__builtin_ctzll(others));
      Run(step, place, first + start, run, head, split, arena);
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
  // `split`: counted from the first row's first.
  DEVICE static void Run(const StepView& step, const StepView::Place& place, uint32_t row, uint32_t count, uint32_t head,
                         uint32_t split, Arena arena) {
    const AttendArgs args = ReadArgumentsAgain<Args>();
    const uint32_t last = place.position + count - 1, seen = FirstSeen(place.position, args.window);
    const uint32_t begin = (seen / kSplitTokens + split) * kSplitTokens;
    if (begin > last) return;
    const uint32_t token = begin + WaveId() * 32, each = kMaxGroup / args.group;
    const bool sees = token <= last && token + 32 > seen;
    typename One::PagesOf pages;
    pages.Find(args, step, place, head, sees ? token : last, seen, last, true);  // who sees none asks for what there is
    typename One::Parts parts(pages.a, pages.b);
    if constexpr (One::kWhole) parts.AskFirst();
    // Rows before the split's first token do not see it, nor do those whose windows begin behind its last.
    const uint32_t before = begin > place.position ? (begin - place.position) / each * each : 0;
    const uint32_t end = args.window == 0 ? count : Min(count, begin + kSplitTokens - 1 + args.window - place.position);
#pragma clang loop unroll(disable)
    for (uint32_t i = before; i < end; i += each) {
      if constexpr (!One::kWhole) {
        pages.a.base = MadeHere(pages.a.base);
        pages.b.base = MadeHere(pages.b.base);
        parts.AskFirst();
      }
      OneTile({row + i, place.position + i, Min(each, end - i), head, token / kSplitTokens, args.group}, parts, token, arena);
    }
  }
  DEVICE static void OneTile(const Tile& tile, typename One::Parts& parts, uint32_t token, Arena arena) {
    const AttendArgs args = ReadArgumentsAgain<Args>();
    const uint32_t last = tile.position + tile.rows - 1, first = FirstSeen(tile.position, args.window);
    Running<kValueDim> run;
    if (token <= last && token + 32 > first) {
      const uint32_t column = Min(LaneRow(), tile.rows * tile.group - 1);
      const uint32_t r = column / tile.group, own = tile.position + r, seen = FirstSeen(own, args.window);
      const Global<const float> q = At(args.qkv) + uint64_t{tile.row + r} * args.q_stride +
                                    (tile.head * tile.group + (column - r * tile.group)) * kHeadDim;
      SplitEight query[One::kSteps];
      One::SplitQueries(args, [=](uint32_t s) { return LoadStep(q, s); }, query, run);
      One::Group(parts, {token - seen, own - seen}, {token - first, last - first}, query, run);
      if (own < token || token + 32 <= seen) {  // as if the row had not come here
        run.largest = Running<kValueDim>().largest;
        run.unit = 1;
      }
    }
    One::template Finish<true>(ReadArgumentsAgain<Args>(),
                               {tile.row, tile.head, tile.split, 0, tile.group, {}, tile.rows, tile.position}, run, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_TALL_H_
