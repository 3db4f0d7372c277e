// SPDX-License-Identifier: MIT
//
// A product of many rows (prompts), of weights whose leaves are of whole tiles: to the bit what ops/matmul.h gives, in
// the same order of additions, but of a workgroup that has 64 rows of x (rounded ones: 96) and 128 or 256 of the weight.
//
// Each wave has output tiles of its own, which it takes from memory straight into registers, a block ahead; x goes
// through LDS, where all four read it. So a word of x from LDS is multiplied kOut times, and a word of the weight
// kRowTiles times. A wave adds up all leaves itself, one after the other: what is not yet added to a neighbour waits in
// registers, a set for each level of the tree.
#ifndef MAINARCH_KERNELS_OPS_TALL_H_
#define MAINARCH_KERNELS_OPS_TALL_H_

#include "kernels/ops/tall_chunks.h"
#include "kernels/ops/tall_codes.h"
#include "kernels/ops/tall_scaled.h"
#include "kernels/ops/tall_sums.h"

namespace mainarch::kernels {

template <TileFormat kFormat, TallKind kKind, Taken kTaken = Taken::kBoth>
struct Tall {
  using Args = MatmulArgs;
  static constexpr bool kGateUp = kKind == TallKind::kGateUp || kKind == TallKind::kGateUpAny;
  static constexpr bool kAny = kKind == TallKind::kGateUpAny, kParts = kKind == TallKind::kParts;
  // Output tiles of a wave, and tiles of rows: as many as registers hold beside the tree, which is higher where k is in
  // parts.
  static constexpr uint32_t kOut = kParts ? 2 : 4, kPerOutput = kGateUp ? 2 : 1, kLevels = kParts ? 5 : 2;
  static constexpr bool kScaled = kTaken == Taken::kScaled;
  // As registers hold.
  static constexpr uint32_t kTurns = kTaken == Taken::kRounded || (HasCodes(kFormat) && kOut > 2) ? 1 : 2;
  using Rows = TallRowsInLds<kTaken, TallRows(kTaken) / kTileRows, kTurns>;
  static constexpr uint32_t kOutputs = kWaves * kOut / kPerOutput;
  static constexpr bool kCodes = HasCodes(kFormat);
  // In LDS behind rows: of codes sums of x; chunks.
  static constexpr uint32_t kChunksAt = Rows::kLdsBytes + (kCodes ? TallSumsBytes(kFormat) : 0);
  static constexpr uint32_t kLdsBytes = kChunksAt + (kParts && !kScaled ? TallChunks<kFormat>::kBytes : 0);
  static_assert(kOutputs == TallOutputs(kKind));
  // No room for more.
  static constexpr bool kFull = kOut > 2 && ((kFormat == TileFormat::kBf16 && Rows::kRowTiles > 4) || kFormat == TileFormat::kByte);
  template <bool kOdd>
  using Scaled = TallScaledCore<kFormat, Rows, kOut, kLevels, kOdd>;  // sums up by itself
  struct Nothing {};
  template <TileCode kCode>
  using OfBlocks = typename TallCoreOf<kFormat, kCode, Rows, kOut, kLevels, kFull ? kChunkSteps : kBlockSteps>::Core;
  template <TileCode kCode>
  using OfChunks = typename TallCoreOf<kFormat, kCode, Rows, kOut, kLevels, 2 * kChunkSteps>::Core;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows();
    const TallGrid grid(CeilDiv(args.w.outputs, kOutputs), CeilDiv(rows, Rows::kRows));
    if constexpr (kScaled) {
      if (LeafTiles(kFormat, args.w) % 2 == 0) {
        ForEachUnit<Scaled<false>>(args, grid, worker, workers, rows, arena, Nothing());
      } else {
        ForEachUnit<Scaled<true>>(args, grid, worker, workers, rows, arena, Nothing());
      }
    } else {
      ForEachCode<kFormat>([&](auto tag) { OneCode<tag.kValue>(args, grid, worker, workers, rows, arena); });
    }
  }

 private:
  // Codes have loops of their own: in one, registers would be too few.
  template <TileCode kCode>
  DEVICE static void OneCode(const Args& args, const TallGrid& grid, uint32_t worker, uint32_t workers, uint32_t rows,
                             Arena arena) {
    if (kCodes && args.w.code != kCode && args.w.code != TileCode::kByTile) return;
    const uint32_t leaves = kParts ? args.w.parts * kPartLeaves : kPartLeaves;
    // The host knows that leaves of other kinds are of blocks.
    if (!kParts || IsOfBlocks(kFormat, args.w)) {
      using Core = OfBlocks<kCode>;
      ForEachUnit<Core>(args, grid, worker, workers, rows, arena, [&](Core& core) {
        TallBlocks<Core>::Sum(core, leaves, args.w.leaf_tiles * TileSteps(kFormat) / kBlockSteps);
      });
    } else {
      using Core = OfChunks<kCode>;
      const TallChunks<kFormat> chunks(args.w, leaves, arena.Get<uint32_t>(kChunksAt));
      BarrierLds();
      ForEachUnit<Core>(args, grid, worker, workers, rows, arena, [&](Core& core) {
        TallInChunks<Core>::Sum(core, chunks, leaves, args.w.steps - 1);
      });
    }
  }
  template <class Core, class Sum>
  DEVICE static void ForEachUnit(const Args& args, const TallGrid& grid, uint32_t worker, uint32_t workers, uint32_t rows,
                                 Arena arena, Sum sum) {
    for (uint32_t u = worker; u < grid.units(); u += workers) {
      const uint32_t output = grid.output(u) * kOutputs, row = grid.row(u) * Rows::kRows;
      if (output >= args.w.outputs) continue;
      const Args own = Again(args);
      const uint32_t tiles = TilesToMake<Core>(own.w, output);
      if (tiles == 0) continue;
      Unit<Core>(own, own.w, output + WaveId() * (kOut / kPerOutput), tiles, TallNeighbours{row, rows}, arena, sum);
    }
  }
  // Which of a workgroup's output tiles, from `output` on, are to be made here: where each has a code of its own, those of
  // the loop's.
  template <class Core>
  DEVICE static uint32_t TilesToMake(const Tiles& w, uint32_t output) {
    if constexpr (kCodes && !kGateUp) {
      if (w.code == TileCode::kByTile) {
        const uint64_t bytes = ScaleRowBytes(kFormat, w), own = Min(output + LaneId(), w.outputs - 1);
        const uint32_t code = *reinterpret_cast<Global<const uint32_t>>(At(w.scales) + ((own + 1) * bytes - kRecordBytes));
        return static_cast<uint32_t>(Ballot(LaneId() < kOutputs && code == static_cast<uint32_t>(Core::kCode)));
      }
    }
    return ~0u;
  }

 public:
  // Of a workgroup kOutputs tiles from `output` on, k being one part of blocks. `kOdd`: leaves of scaled ones are of an odd number.
  template <bool kOdd, TileCode kCode, class List>
  DEVICE static void UnitOfBlocks(const Args& args, const Tiles& tiles, uint32_t output, const List& list, Arena arena) {
    const uint32_t own = output + WaveId() * (kOut / kPerOutput);
    if constexpr (kScaled) {
      Unit<Scaled<kOdd>>(args, tiles, own, ~0u, list, arena, Nothing());
    } else {
      using Core = OfBlocks<kCode>;
      Unit<Core>(args, tiles, own, ~0u, list, arena, [&](Core& core) {
        TallBlocks<Core>::Sum(core, kPartLeaves, tiles.leaf_tiles * TileSteps(kFormat) / kBlockSteps);
      });
    }
  }

 private:
  // kOut tiles from `output` on of the workgroup's rows (TallNeighbours, TallPairs). `tiles`: the weight; `to_make`: of the
  // workgroup's.
  template <class Core, class List, class Sum>
  DEVICE static void Unit(const Args& args, const Tiles& tiles, uint32_t output, uint32_t to_make, const List& list,
                          Arena arena, Sum sum) {
    Rows x(args, list, arena.Get<uint8_t>());
    TileRow w[kOut];
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const uint32_t own = Min(output + o / kPerOutput, tiles.outputs - 1);
      w[o] = RowOf<kFormat>(tiles, Uniform(own * kPerOutput + o % kPerOutput));
    }
    Core sums(w, &x);
    if constexpr (kCodes) sums.SetCodes(tiles, arena.Get<uint8_t>(Rows::kLdsBytes));
    if constexpr (kScaled) {
      sums.Sum(tiles);
    } else {
      sum(sums);
    }
    const Args after = Again(args);
    Factors(after, list, arena);
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Rows::kRowTiles; ++r) {
      const uint32_t own = r * kTileRows + LaneRow();
      const float by = arena.Get<float>()[own];
      if (!list.Has(own)) continue;
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; o += kPerOutput) {
        if (output + o / kPerOutput >= tiles.outputs) continue;
        if (kCodes && !kGateUp && !(to_make >> (WaveId() * kOut + o) & 1)) continue;
        const uint32_t column = (output + o / kPerOutput) * kTileRows + LanePart() * 4;
        Store(after, list.expert, list.Out(own), column, sums.Of(o, r) * by, sums.Of(o + kPerOutput - 1, r) * by);
      }
    }
    BarrierLds();
  }
  // Of codes: kept, they would need more scalar registers than there are.
  DEVICE static Args Again(const Args& args) {
    if constexpr (kCodes) {
      return ReadArgumentsAgain<Args>();
    } else {
      return args;
    }
  }
  // Of the norm, by rows of the workgroup: 16 threads each, as elsewhere.
  template <class List>
  DEVICE static void Factors(const Args& args, const List& list, Arena arena) {
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < Rows::kRowTiles; ++i) {
      const uint32_t own = i * kTileRows + ThreadId() / kTileRows;
      const RowFactor factor(args.norm, list.Factor(own), list.HasFactor(args, own));
      const float by = factor.Value(args.norm);
      if (ThreadId() % kTileRows == 0) arena.Get<float>()[own] = by;
    }
    BarrierLds();
  }
  // Four neighbouring columns.
  DEVICE static void Store(const Args& args, uint32_t expert, uint32_t row, uint32_t column, f32x4 first, f32x4 up) {
    const Global<float> to = At(args.out) + uint64_t{row} * args.out_stride;
    if constexpr (!kGateUp) {
      *reinterpret_cast<Global<f32x4>>(to + column) = first;
    } else {
      f32x4 value;
      GatingArgs any;
      if constexpr (kAny) any = ReadArgumentsAgain<GateUpAnyArgs>().gating;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 4; ++i) {
        if constexpr (kAny) {
          value[i] = Gating(any, expert, column + i).Value(any, first[i], up[i]);
        } else {
          value[i] = Silu(first[i]) * up[i];
        }
      }
      StoreSplitPiece(to, column, RowPiece{value[0], value[1]});
      StoreSplitPiece(to, column + 2, RowPiece{value[2], value[3]});
    }
  }
};

template <TileFormat kFormat, Taken kTaken = Taken::kBoth>
struct TallAny {
  using Args = GateUpAnyArgs;
  using Product = Tall<kFormat, TallKind::kGateUpAny, kTaken>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_H_
