// SPDX-License-Identifier: MIT
//
// A product of many rows (prompts), of weights that TallTakes: to the bit what ops/matmul.h gives, in
// the same order of additions, but of a workgroup that has 64 rows of x (rounded ones: 96; in tiles, and through a ring: 128; others: TallRaggedRows) and 128 or
// 256 of the weight.
//
// Each wave has output tiles of its own, which it takes from memory straight into registers, a block ahead; x goes
// through LDS, where all four read it. So a word of x from LDS is multiplied kOut times, and a word of the weight
// kRowTiles times. A wave adds up all leaves itself, one after the other: what is not yet added to a neighbour waits in
// registers, a set for each level of the tree.
#ifndef MAINARCH_KERNELS_OPS_TALL_H_
#define MAINARCH_KERNELS_OPS_TALL_H_

#include "kernels/ops/tall_chunks.h"
#include "kernels/ops/tall_codes.h"
#include "kernels/ops/tall_ragged.h"
#include "kernels/ops/tall_ring.h"
#include "kernels/ops/tall_scaled.h"
#include "kernels/ops/tall_sums.h"
#include "kernels/ops/tall_tiled.h"

namespace mainarch::kernels {

template <TileFormat kFormat, TallKind kKind, Taken kTaken = Taken::kBoth>
struct Tall {
  using Args = MatmulArgs;
  static constexpr bool kGateUp = kKind == TallKind::kGateUp || kKind == TallKind::kGateUpAny;
  static constexpr bool kAny = kKind == TallKind::kGateUpAny, kParts = kKind == TallKind::kParts;
  static constexpr bool kScaled = kTaken == Taken::kScaled, kTiled = kTaken == Taken::kTiled;
  static constexpr bool kRing = kTaken == Taken::kRing, kMade = RowsAreMade(kTaken);
  static constexpr bool kCodes = HasCodes(kFormat), kChunks = kParts && !kMade;
  static constexpr bool kRagged = kGateUp && !kMade && !kCodes;
  // Output tiles of a wave, and tiles of rows: as many as registers hold beside the tree, which is higher where k is in
  // parts.
  static constexpr uint32_t kOut = kParts ? 2 : 4, kPerOutput = kGateUp ? 2 : 1, kLevels = kParts ? 5 : 2;
  // As registers hold.
  static constexpr uint32_t kTurns = kTiled || kRing ? kOut : kTaken == Taken::kRounded || (kCodes && kOut > 2) ? 1 : 2;
  using Rows = typename TallPlaceOfRows<kFormat, kTaken, TallRows(kTaken) / kTileRows, kTurns>::Rows;
  static constexpr uint32_t kOutputs = kWaves * kOut / kPerOutput;
  // In LDS behind rows: of codes sums of x; chunks.
  static constexpr uint32_t kChunksAt = Rows::kLdsBytes + (kCodes ? TallSumsBytes(kFormat) : 0);
  static constexpr uint32_t kLdsBytes = kChunksAt + (kChunks ? TallChunks<kFormat>::kBytes : 0);
  static_assert(kOutputs == TallOutputs(kKind));
  // No room for more.
  static constexpr bool kFull = kOut > 2 && ((kFormat == TileFormat::kBf16 && Rows::kRowTiles > 4) || kFormat == TileFormat::kByte);
  template <TileCode kCode>
  using CoreOf = typename TallCoreOf<kFormat, kCode, Rows, kOut, kLevels, kFull ? kChunkSteps : kBlockSteps>::Core;
  using Chunks = TallChunks<kFormat>;

  // How a wave's sums are made of a weight's leaves, of which there are so many. `kAgain`: there are no registers to keep
  // arguments in.
  template <TileCode kTileCode>
  struct OfBlocks {
    using Rows = Tall::Rows;
    using Sums = CoreOf<kTileCode>;
    static constexpr TileCode kCode = kTileCode;
    static constexpr bool kAgain = kCodes;
    uint32_t leaves;
    DEVICE void Sum(Sums& core, const Tiles& w) const {
      TallBlocks<Sums>::Sum(core, leaves, w.leaf_tiles * TileSteps(kFormat) / kBlockSteps);
    }
  };
  template <TileCode kTileCode>
  struct InChunks {
    using Rows = Tall::Rows;
    using Sums = CoreOf<kTileCode>;
    static constexpr TileCode kCode = kTileCode;
    static constexpr bool kAgain = kCodes;
    uint32_t leaves;
    Chunks chunks;
    // All threads; a barrier comes before who sums.
    DEVICE InChunks(const Tiles& w, uint32_t count, Arena arena)
        : leaves(count), chunks(w, count, arena.Get<uint32_t>(kChunksAt)) {
      BarrierLds();
    }
    DEVICE void Sum(Sums& core, const Tiles& w) const { TallInChunks<Sums>::Sum(core, chunks, leaves, w.steps - 1); }
  };
  struct Ragged {
    using Rows = TallRowsInLds<kTaken, TallRaggedRows(kFormat, kTaken) / kTileRows, kTurns>;
    using Sums = TallCore<kFormat, Rows, kOut, kLevels, kFormat == TileFormat::kMxfp4 ? kBlockSteps : kChunkSteps>;
    static constexpr TileCode kCode = TileCode::kByTile;  // none
    static constexpr bool kAgain = kFormat == TileFormat::kMxfp4;
    DEVICE void Sum(Sums& core, const Tiles& w) const { TallRagged<Sums>::Sum(core, w.steps); }
  };
  // `kOdd`: each of an odd number of tiles.
  template <bool kOdd>
  struct Scaled {
    using Rows = Tall::Rows;
    using Sums = TallScaledCore<kFormat, Rows, kOut, kLevels, kOdd>;
    static constexpr TileCode kCode = TileCode::kByTile;  // none
    static constexpr bool kAgain = false;
    DEVICE void Sum(Sums& core, const Tiles& w) const { core.Sum(w); }
  };
  // By way of a ring in LDS.
  template <class Core, bool kReadAgain>
  struct InRing {
    using Rows = Tall::Rows;
    using Sums = Core;
    static constexpr TileCode kCode = TileCode::kByTile;  // none
    static constexpr bool kAgain = kReadAgain;
    DEVICE void Sum(Sums& core, const Tiles& w) const { core.Sum(kParts ? w.parts : 1, LeafTiles(kFormat, w)); }
  };

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows();
    if constexpr (kScaled) {
      if (LeafTiles(kFormat, args.w) % 2 == 0) {
        ForEachUnit(args, worker, workers, rows, arena, Scaled<false>());
      } else {
        ForEachUnit(args, worker, workers, rows, arena, Scaled<true>());
      }
    } else if constexpr (kRing) {
      ForEachUnit(args, worker, workers, rows, arena, InRing<TallRingCore<Rows, kOut, kLevels>, true>());
    } else if constexpr (kTiled) {
      ForEachUnit(args, worker, workers, rows, arena, InRing<TallTiledCore<Rows, kOut, kLevels>, false>());
    } else if constexpr (kCodes) {
      ForEachCode<kFormat>([&](auto tag) { OneCode<tag.kValue>(args, worker, workers, rows, arena); });
    } else {
      OneCode<TileCode::kByTile>(args, worker, workers, rows, arena);
    }
  }

 private:
  // Codes have loops of their own: in one, registers would be too few.
  template <TileCode kCode>
  DEVICE static void OneCode(const Args& args, uint32_t worker, uint32_t workers, uint32_t rows, Arena arena) {
    if (kCodes && args.w.code != kCode && args.w.code != TileCode::kByTile) return;
    const uint32_t leaves = kParts ? args.w.parts * kPartLeaves : kPartLeaves;
    // The host knows that leaves of kMatmul are of blocks.
    if (!(kChunks || kRagged) || IsOfBlocks(kFormat, args.w)) {
      ForEachUnit(args, worker, workers, rows, arena, OfBlocks<kCode>{leaves});
    } else if constexpr (kRagged) {
      ForEachUnit(args, worker, workers, rows, arena, Ragged());
    } else if constexpr (kChunks) {
      ForEachUnit(args, worker, workers, rows, arena, InChunks<kCode>(args.w, leaves, arena));
    }
  }
  template <class Way>
  DEVICE static void ForEachUnit(const Args& args, uint32_t worker, uint32_t workers, uint32_t rows, Arena arena, const Way& way) {
    constexpr uint32_t kRows = Way::Rows::kRows;
    const TallGrid grid(CeilDiv(args.w.outputs, kOutputs), CeilDiv(rows, kRows));
    for (uint32_t u = worker; u < grid.units(); u += workers) {
      const uint32_t output = grid.output(u) * kOutputs, row = grid.row(u) * kRows;
      if (output >= args.w.outputs) continue;
      if constexpr (Way::kAgain) {
        const Args again = ReadArgumentsAgain<Args>();
        const uint32_t tiles = TilesToMake(again.w, output, Way::kCode);
        if (tiles != 0) Unit(again, again.w, output, TallNeighbours{row, rows}, arena, way, tiles);
      } else {
        Unit(args, args.w, output, TallNeighbours{row, rows}, arena, way);
      }
    }
  }
  // Which of a workgroup's output tiles, from `output` on, are to be made here: where each has a code of its own, those of
  // the loop's.
  DEVICE static uint32_t TilesToMake(const Tiles& w, uint32_t output, TileCode loops) {
    if constexpr (kCodes && !kGateUp) {
      if (w.code == TileCode::kByTile) {
        const uint64_t bytes = ScaleRowBytes(kFormat, w), own = Min(output + LaneId(), w.outputs - 1);
        const uint32_t code = *reinterpret_cast<Global<const uint32_t>>(At(w.scales) + ((own + 1) * bytes - kRecordBytes));
        return static_cast<uint32_t>(Ballot(LaneId() < kOutputs && code == static_cast<uint32_t>(loops)));
      }
    }
    return ~0u;
  }

 public:
  // Of the workgroup's rows (TallNeighbours, TallPairs) kOutputs tiles from `first` on, of which `to_make`. `tiles`: the weight.
  template <class List, class Way>
  DEVICE static void Unit(const Args& args, const Tiles& tiles, uint32_t first, const List& list, Arena arena, const Way& way,
                          uint32_t to_make = ~0u) {
    const uint32_t output = first + WaveId() * (kOut / kPerOutput);  // this wave's
    typename Way::Rows x(args, list, arena.Get<uint8_t>());
    TileRow w[kOut];
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const uint32_t own = Min(output + o / kPerOutput, tiles.outputs - 1);
      w[o] = RowOf<kFormat>(tiles, Uniform(own * kPerOutput + o % kPerOutput));
    }
    typename Way::Sums sums(w, &x);
    if constexpr (kCodes) sums.SetCodes(tiles, arena.Get<uint8_t>(Rows::kLdsBytes));
    way.Sum(sums, tiles);
    if constexpr (kCodes || kRing) {  // kept, arguments would need more scalar registers than there are
      Finish<Way>(ReadArgumentsAgain<Args>(), tiles, output, to_make, list, sums, arena);
    } else {
      Finish<Way>(args, tiles, output, to_make, list, sums, arena);
    }
  }

 private:
  template <class Way, class List>
  DEVICE static void Finish(const Args& args, const Tiles& tiles, uint32_t output, uint32_t to_make, const List& list,
                            const typename Way::Sums& sums, Arena arena) {
    Factors<Way::Rows::kRowTiles>(args, list, arena);
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Way::Rows::kRowTiles; ++r) {
      const uint32_t own = r * kTileRows + LaneRow();
      const float by = arena.Get<float>()[own];
      if (!list.Has(own)) continue;
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; o += kPerOutput) {
        if (output + o / kPerOutput >= tiles.outputs) continue;
        if (kCodes && !kGateUp && !(to_make >> (WaveId() * kOut + o) & 1)) continue;
        const uint32_t column = (output + o / kPerOutput) * kTileRows + LanePart() * 4;
        Store(args, list.expert, list.Out(own), column, sums.Of(o, r) * by, sums.Of(o + kPerOutput - 1, r) * by);
      }
    }
    BarrierLds();
  }
  // Of the norm, by rows of the workgroup: 16 threads each, as elsewhere.
  template <uint32_t kRowTiles, class List>
  DEVICE static void Factors(const Args& args, const List& list, Arena arena) {
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < kRowTiles; ++i) {
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
