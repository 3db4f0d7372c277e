// SPDX-License-Identifier: MIT
//
// Down of routed experts in steps of many rows. A workgroup has an output tile and a block of rows, of which each expert takes
// those that chose it: so many of them as there are are the columns of its matrix instructions, and what they give is added to
// sums of rows in LDS. Tile by tile of a leaf, and experts ascending, as ops/experts.h adds: to the bit what that gives.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_TALL_DOWN_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_TALL_DOWN_H_

#include "kernels/ops/experts.h"

namespace mainarch::kernels {

template <TileFormat kDown, Taken kTaken = Taken::kBoth>
struct ExpertsTallDown {
  using Args = ExpertsTallDownArgs;
  static constexpr Columns kColumns = ColumnsOf(kTaken, false);
  using In = Operand<kColumns>;
  using Own = Experts<kDown, kTaken>;
  static constexpr uint32_t kWords = In::kWords, kRows = kExpertRows;
  static_assert(kRows == kWave);  // a lane has a row's sums
  // Of each wave the sums of a row's outputs, kWords of each; padded, so that rows lie in other banks.
  static constexpr uint32_t kStride = kWords * kTileRows + 4, kOfWave = kRows * kStride;  // floats
  // Columns of a matrix instruction: an expert and some of its rows.
  static constexpr uint32_t kMostPairs = kRows * kRouterMaxTop;
  static constexpr uint32_t kMostItems = Own::Choices::kIds + kMostPairs / kTileRows;
  static constexpr uint32_t kPairsAt = kWaves * kOfWave * 4, kItemsAt = kPairsAt + kMostPairs * 8;
  static constexpr uint32_t kCountsAt = kItemsAt + kMostItems * 16, kLdsBytes = kCountsAt + kWaves * 4;
  // expert; where in LDS its pairs begin, and how many there are << 16; where in the lists.
  using Item = u32x4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    constexpr uint32_t kDies = TallGrid::kDies;
    const uint32_t rows = StepView(args.experts.step).rows(), each = CeilDiv(rows, kRows) * kDies;
    // Blocks of an output tile one behind the other, on one die, whose cache keeps what experts have of that tile.
#pragma clang loop unroll(disable)
    for (uint32_t t = worker;; t += workers) {
      const Args again = ReadArgumentsAgain<Args>();
      const uint32_t turn = Uniform(t / each), place = t - turn * each;
      const uint32_t output = Uniform(turn * kDies + place % kDies), first = place / kDies * kRows;
      if (turn * kDies >= again.experts.down.outputs) return;
      if (output < again.experts.down.outputs) OneUnit(again, output, first, rows, arena);
    }
  }

 private:
  static constexpr uint32_t kFours = kTileRows / 4;  // of a row's outputs

  DEVICE static void OneUnit(const Args& args, uint32_t output, uint32_t first, uint32_t rows, Arena arena) {
    const uint32_t items = List(args, first, arena);
    const Lds<float> sums = arena.Get<float>() + WaveId() * kOfWave;
    const Tiles& down = args.experts.down;
    const Work work = {args, output, first, items, arena, sums};
    LeafTree trees[kFours];  // of this lane's row
    ForEachLeaf<kDown>(down, 0, down.parts, [&](uint32_t i, Leaf<kDown> leaf) {
      Clear(sums);
#pragma clang loop unroll(disable)
      for (; leaf.tiles > 0; --leaf.tiles, leaf.step += TileSteps(kDown)) AddPieces<DownTile<kDown>>(work, leaf.step);
      ForEachTailTile<kDown>(leaf.step, leaf.tail,
                             [&](auto piece, uint32_t step) { AddPieces<decltype(piece)>(work, step); });
#pragma clang loop unroll(full)
      for (uint32_t four = 0; four < kFours; ++four) trees[four].Push(i, Take(sums, four));
    });
    const Lds<f32x4> own = reinterpret_cast<Lds<f32x4>>(sums + LaneId() * kStride);
#pragma clang loop unroll(full)
    for (uint32_t four = 0; four < kFours; ++four) own[four] = trees[four].Sum(down.parts);
    BarrierLds();
    Put(args, output, first, rows, arena);
  }

  // ---- who is in the block ----

  // Items by expert, ascending, and their pairs; how many items.
  DEVICE static uint32_t List(const Args& args, uint32_t first, Arena arena) {
    const uint32_t experts = args.experts.experts, top = args.experts.top, blocks = ExpertBlocks(args.experts.most_rows);
    const Global<const uint32_t> starts = At(args.lists) + first / kRows, pairs = At(args.lists) + experts * (blocks + 1);
    const Lds<Item> items = arena.Get<Item>(kItemsAt);
    const Lds<u32x2> own = arena.Get<u32x2>(kPairsAt);
    const Lds<uint32_t> counts = arena.Get<uint32_t>(kCountsAt);
    uint32_t before = 0;  // items, and pairs << 16
#pragma clang loop unroll(disable)
    for (uint32_t base = 0; base < experts; base += kThreads) {
      const uint32_t expert = base + ThreadId(), at = Min(expert, experts - 1) * (blocks + 1);
      const uint32_t begin = starts[at], count = expert < experts ? starts[at + 1] - begin : 0;
      const uint32_t groups = CeilDiv(count, kTileRows), both = groups | count << 16;
      uint32_t place = SumBefore(both);
      if (LaneId() == kWave - 1) counts[WaveId()] = place + both;
      BarrierLds();
      uint32_t all = 0;
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWaves; ++w) {
        const uint32_t of_wave = counts[w];
        place += w < WaveId() ? of_wave : 0;
        all += of_wave;
      }
      place += before;
      for (uint32_t g = 0; g < groups; ++g) {
        const uint32_t done = g * kTileRows;
        items[(place & 0xffff) + g] = Item{expert, (place >> 16) + done | Min(count - done, kTileRows) << 16, begin + done, 0};
      }
      before += Uniform(all);
      BarrierLds();
    }
    const uint32_t count = before & 0xffff;
#pragma clang loop unroll(disable)
    for (uint32_t i = ThreadId() / kTileRows; i < count; i += kThreads / kTileRows) {
      const Item item = items[i];
      const uint32_t in = ThreadId() % kTileRows, begin = item[1], from = item[2];
      if (in >= begin >> 16) continue;
      const uint32_t pair = pairs[from + in], row = PairRow(pair), at = row * top + PairSlot(pair);
      own[(begin & 0xffff) + in] = u32x2{(row - first) << 16 | (at - first * top), BitCast<uint32_t>(At(args.experts.weights)[at])};
    }
    BarrierLds();
    return Uniform(count);
  }

  // ---- sums ----

  struct Work {
    const Args& args;
    uint32_t output, first, items;
    Arena arena;
    Lds<float> sums;
  };

  DEVICE static void Clear(Lds<float> sums) {
    const Lds<f32x4> own = reinterpret_cast<Lds<f32x4>>(sums + LaneId() * kStride);
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kStride / 4; ++i) own[i] = f32x4{0, 0, 0, 0};
  }
  // JoinColumns of four outputs of this lane's row.
  DEVICE static f32x4 Take(Lds<const float> sums, uint32_t four) {
    const Lds<const f32x4> own = reinterpret_cast<Lds<const f32x4>>(sums + LaneId() * kStride);
    f32x4 out = own[four];
    if constexpr (kWords == 2) out = out + own[kFours + four];
    return out;
  }
  // The four waves', which lie in LDS, added in the tree.
  DEVICE static void Put(const Args& args, uint32_t output, uint32_t first, uint32_t rows, Arena arena) {
    const uint32_t row = ThreadId() / 4, four = ThreadId() % 4;
    f32x4 all[kWaves];
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < kWaves; ++w) {
      all[w] = *reinterpret_cast<Lds<const f32x4>>(arena.Get<float>() + w * kOfWave + row * kStride + four * 4);
    }
    AddTree(all, kWaves, [](f32x4 a, f32x4 b) { return a + b; });
    if (first + row < rows) {
      const Global<float> to = At(args.experts.out) + uint64_t{first + row} * args.experts.out_stride;
      *reinterpret_cast<Global<f32x4>>(to + (output * kTileRows + four * 4)) = all[0];
    }
    BarrierLds();
  }

  // Some items: their experts' piece of k, and their rows' inputs.
  template <class Piece>
  struct Batch {
    // As registers hold.
    static constexpr uint32_t kCount = kDown == TileFormat::kMxfp4               ? 2
                                       : kTaken == Taken::kRounded && kDown == TileFormat::kBf16 ? 6
                                                                                : Own::Down::DownBatch(kColumns);
    Piece pieces[kCount];
    u32x4 in[kCount][Piece::kSteps][kWords];
    uint32_t rows[kCount];  // of the lane: where its sums are; ~0: none
    float weights[kCount];

    // Of those that there are not the last one again.
    DEVICE void Ask(const Work& work, uint32_t place, uint32_t step) {
      const ExpertsArgs& args = work.args.experts;
      const uint64_t base = args.act.address + uint64_t{work.first} * args.top * args.act_stride * 4;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kCount; ++i) {
        const Item item = work.arena.template Get<Item>(kItemsAt)[Min(place + i, work.items - 1)];
        const uint32_t begin = item[1], count = begin >> 16;
        const u32x2 pair =
            work.arena.template Get<u32x2>(kPairsAt)[(begin & 0xffff) + Min(LaneRow(), count - 1)];
        const bool real = place + i < work.items && LaneRow() < count;
        rows[i] = real ? (pair[0] >> 16) * kStride : ~0u;
        weights[i] = BitCast<float>(+pair[1]);
        pieces[i].Load(RowOf<kDown>(Own::Choices::ExpertOf(args.down, args.down_stride, args.down_scale_stride, Uniform(+item[0])), work.output),
                       step);
        const In x = {reinterpret_cast<Global<const uint8_t>>(base) + (pair[0] & 0xffff) * args.act_stride * 4 + In::LaneBytes()};
        LoadSteps<kColumns>(x, step, in[i]);
        KeepOrder();  // or addresses of all would be made first, in registers that there are not
      }
    }
    DEVICE void AddTo(Lds<float> sums, uint32_t step) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kCount; ++i) {
        f32x4 own[kWords];
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) own[w] = f32x4{0, 0, 0, 0};
        pieces[i].template Add<kColumns>(step, in[i], own);
        // Not within the branch, where lanes without a row would make no part of what all lanes multiply.
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) own[w] = MadeBefore(own[w]);
        if (rows[i] == ~0u) continue;
        const Lds<f32x4> to = reinterpret_cast<Lds<f32x4>>(sums + rows[i] + LanePart() * 4);
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) {
          f32x4 total = to[w * kFours];
#pragma clang loop unroll(full)
          for (int e = 0; e < 4; ++e) {
            const float value = own[w][e], old = total[e];
            total[e] = Fma(weights[i], value, old);
          }
          to[w * kFours] = total;
        }
      }
    }
  };

  // A batch is on its way while the one before it is multiplied: two by turns, for who moved one would wait for it.
  template <class Piece>
  DEVICE static void AddPieces(const Work& work, uint32_t step) {
    using Some = Batch<Piece>;
    Some one, other;
    one.Ask(work, 0, step);
#pragma clang loop unroll(disable)
    for (uint32_t place = 0; place < work.items; place += 2 * Some::kCount) {
      other.Ask(work, place + Some::kCount, step);
      one.AddTo(work.sums, step);
      one.Ask(work, place + 2 * Some::kCount, step);
      other.AddTo(work.sums, step);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_TALL_DOWN_H_
