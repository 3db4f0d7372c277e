// SPDX-License-Identifier: MIT
//
// Of a launch of experts (ops/experts.h): down, where some leaves are empty.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_TOGETHER_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_TOGETHER_H_

#include "kernels/ops/experts_down.h"

namespace mainarch::kernels {

// `kFormat`: of gate and up; `Sums`: what becomes of the sums.
template <TileFormat kFormat, TileFormat kDown, class Sums>
struct ExpertsTogether {
  using Args = ExpertsArgs;
  using Choices = ExpertsChosen<kFormat>;
  using Down = ExpertsDown<kFormat, kDown, Sums>;
  using Tile = DownTile<kDown>;

  // Of few tiles waves would have nothing to do. Then each multiplies some of the experts' tiles, whose
  // leaf it may be, and each thread adds up an element: in the same order, to the same bits.
  // Not of fp8, whose tiles are asked for ahead instead (DownAhead); nor where scalar registers are too few: of codes, which have
  // several ways, and of MXFP4 on a chip that takes it apart in code.
  static constexpr bool kTakes =
      kDown != TileFormat::kFp8 && !HasCodes(kDown) &&
      (kDown != TileFormat::kMxfp4 || isa::kFacts.has_scaled_mfma);
  DEVICE static bool Takes(const Tiles& down) {
    return kTakes && down.parts <= 2 && down.steps < down.parts * kPartLeaves * TileSteps(kDown);
  }
  // Experts of a wave at once, and of the workgroup.
  [[gnu::always_inline]] static constexpr uint32_t Each(Columns columns) {
    if (columns == Columns::kRounded || IsScaled(columns)) return 4;  // as registers hold
    return columns == Columns::kMany ? Choices::kScratchTiles / 2 : Choices::kScratchTiles;
  }

  // What a wave has asked for of experts place, place + kWaves, ...
  template <class Piece, Columns kColumns>
  struct Asked {
    Piece pieces[Each(kColumns)];
    uint32_t slots[2];  // of the lane's row, a byte each
    DEVICE uint32_t SlotAt(uint32_t e) const { return slots[e / 4] >> e % 4 * 8 & 0xff; }
  };

  template <class Piece, Columns kColumns>
  DEVICE static Asked<Piece, kColumns> Ask(const Args& args, const DownUnit& unit, uint32_t step,
                                           uint32_t place) {
    constexpr uint32_t kEach = Each(kColumns);
    static_assert(kEach <= 8);
    Asked<Piece, kColumns> out;
    const uint32_t output = MadeHere(Uniform(unit.output));  // what is made of it takes scalar registers
    const uint32_t last = unit.count - 1, row = MadeBefore(unit.mine - unit.first);
    const uint32_t ids = unit.list[1 + Min(place + MadeBefore(LaneId()) % 8 * kWaves, last)];
    uint32_t slots[kEach];
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
      slots[e] = Choices::SlotOf(row, Min(place + e * kWaves, last), unit.arena);
    }
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
      out.pieces[e].Load(RowOf<kDown>(Choices::ExpertOf(args.down, args.down_stride,
                                                          args.down_scale_stride, ReadLane(ids, e)),
                                        output),
                         step);
      KeepOrder();  // or addresses of all would be made first, in registers that there are not
    }
    out.slots[0] = out.slots[1] = 0;
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
      // As in ExpertsDown::Choose.
      out.slots[e / 4] |= (slots[e] != Choices::kNoSlot ? slots[e] : 0) << e % 4 * 8;
    }
    return out;
  }

  // The first ones, and the next.
  template <class Piece, Columns kColumns>
  DEVICE static void AskFirst(const Args& args, const DownUnit& unit, uint32_t step,
                              Asked<Piece, kColumns> (&asked)[2]) {
    constexpr uint32_t kAtOnce = Each(kColumns) * kWaves;
    asked[0] = Ask<Piece, kColumns>(args, unit, step, WaveId());
    if (kAtOnce < unit.count) {
      asked[1] = Ask<Piece, kColumns>(args, unit, step, kAtOnce + WaveId());
    }
  }

  // `early`: `asked` is what the first tile of the first output takes first.
  template <Columns kColumns>
  DEVICE static void Run(const Args& args, uint32_t rows, uint32_t first, uint32_t worker, uint32_t workers, bool early,
                         Asked<Tile, kColumns> (&asked)[2], const Sums& made, Arena arena) {
    const uint32_t leaves = args.down.parts * kPartLeaves;
    for (uint32_t output = worker; output < args.down.outputs; output += workers) {
      const DownUnit unit = Down::template UnitOf<kColumns>(rows, first, output, arena);
      LeafTreeOf<float> tree;
#pragma clang loop unroll(disable)
      for (uint32_t i = 0; i < leaves; ++i) {
        const uint32_t part = i / kPartLeaves;
        const uint32_t begin = part == 0 ? 0 : PartEnd(args.down, part - 1);
        Leaf<kDown> leaf(begin, PartEnd(args.down, part), i % kPartLeaves);
        float totals[Operand<kColumns>::kWords] = {};
#pragma clang loop unroll(disable)
        for (; leaf.tiles > 0; --leaf.tiles, leaf.step += TileSteps(kDown)) {
          if (!early) AskFirst(args, unit, leaf.step, asked);
          early = false;
          AddTogether(args, unit, leaf.step, asked, totals);
        }
        ForEachTailTile<kDown>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
          Asked<decltype(piece), kColumns> own[2];
          AskFirst(args, unit, step, own);
          AddTogether(args, unit, step, own, totals);
        });
        float sum = totals[0];
        if constexpr (kColumns == Columns::kMany) sum = sum + totals[1];
        if constexpr (kColumns == Columns::kFew) sum = sum + RotateRow8(sum);
        tree.Push(i, sum);
      }
      // A wave has four outputs of each row: a row's sixteen leave together, as whole lines.
      const Lds<float> sums = arena.Get<float>();
      sums[LaneRow() * kTileRows + WaveId() * 4 + LanePart()] = tree.Sum(leaves);
      BarrierLds();
      const uint32_t row = first + ThreadId() / kTileRows;
      if (row < rows) made.Put(args, row, output * kTileRows + ThreadId() % kTileRows, sums[ThreadId()]);
      BarrierLds();
    }
  }

  template <class Piece, Columns kColumns>
  using Inputs = u32x4[Each(kColumns)][Piece::kSteps][Operand<kColumns>::kWords];

  template <class Piece, Columns kColumns>
  DEVICE static void LoadInputs(const Args& args, const DownUnit& unit, const Asked<Piece, kColumns>& asked,
                                uint32_t step, Inputs<Piece, kColumns>& in) {
    KeepOrder();
    const uint32_t mine = MadeBefore(unit.mine * args.top);
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < Each(kColumns); ++e) {
      LoadSteps<kColumns>(Operand<kColumns>::Of(At(args.act), args.act_stride,
                                                mine + asked.SlotAt(e)),
                          step, in[e]);
    }
    KeepOrder();
  }

  // As AddPieces, of all waves. Weights are asked for two turns before they are multiplied, inputs one.
  template <class Piece, Columns kColumns>
  DEVICE static void AddTogether(const Args& args, const DownUnit& unit, uint32_t step,
                                 Asked<Piece, kColumns> (&asked)[2],
                                 float (&totals)[Operand<kColumns>::kWords]) {
    constexpr uint32_t kAtOnce = Each(kColumns) * kWaves;
    Inputs<Piece, kColumns> in;
    LoadInputs(args, unit, asked[0], step, in);
#pragma clang loop unroll(disable)
    for (uint32_t place = 0; place < unit.count; place += kAtOnce) {
      FillTable<kAtOnce>(args, unit, place);
      KeepOrder();
      Multiply<Piece, kColumns>(asked[0], in, step, unit.arena);
      if (place + kAtOnce < unit.count) {
        asked[0] = asked[1];
        LoadInputs(args, unit, asked[0], step, in);
        const uint32_t next = place + 2 * kAtOnce;
        if (next < unit.count) {
          asked[1] = Ask<Piece, kColumns>(args, unit, step, next + WaveId());
        }
      }
      BarrierLds();
      AddProducts<kColumns>(Min(kAtOnce, unit.count - place), unit.arena, totals);
      BarrierLds();
    }
  }

  // The wave's products, of experts place, place + kWaves, ..., to LDS.
  template <class Piece, Columns kColumns>
  DEVICE static void Multiply(
      Asked<Piece, kColumns>& asked, const Inputs<Piece, kColumns>& in, uint32_t step,
      Arena arena) {
    constexpr uint32_t kEach = Each(kColumns), kWords = Operand<kColumns>::kWords;
    const Lds<f32x4> to =
        arena.Get<f32x4>() + MadeBefore(WaveId() * kWords * kWave + LaneId());
    f32x4 sums[kEach][kWords];
    const auto store = [&](uint32_t e) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWords; ++w) {
        to[(e * kWaves * kWords + w) * kWave] = sums[e][w];
      }
    };
#pragma clang loop unroll(full)
    for (uint32_t e = 0; e < kEach; ++e) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWords; ++w) sums[e][w] = f32x4{0, 0, 0, 0};
      asked.pieces[e].template Add<kColumns>(step, in[e], sums[e]);
      store(e);
    }
  }

  // Of each expert that is multiplied and each row its weight; less than 0 where the row did not choose
  // it, or where there is no expert.
  template <uint32_t kAtOnce>
  DEVICE static void FillTable(const Args& args, const DownUnit& unit, uint32_t place) {
    for (uint32_t i = MadeBefore(ThreadId()); i < kAtOnce * kTileRows; i += kThreads) {
      const uint32_t row = i % kTileRows, at = place + i / kTileRows;
      const uint32_t slot = at < unit.count ? Choices::SlotOf(row, at, unit.arena) : Choices::kNoSlot;
      unit.arena.template Get<float>(Choices::kTableAt)[i] =
          slot != Choices::kNoSlot ? unit.arena.template Get<float>(Choices::kWeightsAt)[row * args.top + slot] : -1.0f;
    }
  }

  // A thread's element is column LaneRow() of output WaveId() * 4 + LanePart().
  template <Columns kColumns>
  DEVICE static void AddProducts(uint32_t count, Arena arena,
                                 float (&totals)[Operand<kColumns>::kWords]) {
    constexpr uint32_t kWords = Operand<kColumns>::kWords;
    constexpr uint32_t kGroup = 8 / kWords;
    static_assert(Each(kColumns) * kWaves % kGroup == 0);  // those past the last have no weight
    const uint32_t lane = MadeBefore(LaneId()), column = lane % kTileRows;
    Lds<float> product =
        arena.Get<float>() + (WaveId() * kTileRows + column) * 4 + lane / kTileRows;
    Lds<float> table = arena.Get<float>(Choices::kTableAt) +
                       (kColumns == Columns::kFew ? column % kFewRows : column);
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < count; i += kGroup) {
      float weights[kGroup], values[kGroup][kWords];
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kGroup; ++j) {
        weights[j] = table[j * kTileRows];
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) {
          values[j][w] = product[(j * kWords + w) * kTileRows * kTileRows];
        }
      }
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kGroup; ++j) {
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kWords; ++w) {
          const float old = totals[w], now = Fma(weights[j], values[j][w], old);
          totals[w] = weights[j] < 0 ? old : now;
        }
      }
      product += kGroup * kWords * kTileRows * kTileRows;
      table += kGroup * kTileRows;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_TOGETHER_H_
