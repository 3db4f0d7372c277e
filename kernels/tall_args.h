// SPDX-License-Identifier: MIT
//
// What kernels for many rows (tall_*) take, read by host and device: which weights, as how many rows and outputs a
// workgroup, dealt out how; and rows as MXFP8. What decoder_args.h says of steps, rows and tiles holds here.
#ifndef MAINARCH_KERNELS_TALL_ARGS_H_
#define MAINARCH_KERNELS_TALL_ARGS_H_

#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// Rows as MXFP8 (quant/mxfp8.h), for products of many rows with such weights. A row is codes, and then the factors of its steps. Of
// whole tiles of such weights alone.
// Of a step's parts of eight columns, which lie as split rows have them, the first comes first, then the third, the second, the fourth.
constexpr uint32_t ScaledPart(uint32_t part) { return part % 2 * 2 + part / 2; }
constexpr uint32_t ScaledRowBytes(uint32_t steps) { return (steps * (kStepColumns + 1) + 15) / 16 * 16; }
// Rows rounded to bf16 in tiles, as a weight of bf16 lies.
inline constexpr uint32_t kRowTileBytes = kTileRows * kStepColumns * 2;
constexpr uint64_t TiledRowsBytes(uint32_t rows, uint32_t steps) { return uint64_t{(rows + kTileRows - 1) / kTileRows} * steps * kRowTileBytes; }
// What makes either of them, before the product: scale_rows, tile_rows.
constexpr bool RowsAreMade(Taken taken) { return taken == Taken::kScaled || taken == Taken::kTiled || taken == Taken::kRing; }
struct TakenRowsArgs {
  Address<const uint32_t> step;
  Address<const float> x;  // [rows, x_stride] split rows
  Address<uint8_t> out;    // [rows, ScaledRowBytes(steps)]; [tiles of 16 rows, steps, kRowTileBytes]
  uint32_t x_stride = 0;
  uint32_t steps = 0;
};
static_assert(sizeof(TakenRowsArgs) == 32);

// MatmulArgs for many rows (kernels tall_*), of weights that TallTakes: no splits, no
// logit rows, not told; x is what TakenRowsArgs' launch made, if there is one: of scaled rows x_stride is a quarter of such a row's bytes, of tiles nobody looks at it. A workgroup has so many output tiles and rows of them.
enum class TallKind : uint32_t { kMatmul, kParts, kGateUp, kGateUpAny };  // a k of one part, of any; gate and up
inline constexpr uint32_t kTallChunks = 1024;  // of two steps, at most
inline constexpr uint32_t kTallBlock = 4;      // steps: leaves have a multiple of so many, but for kParts
[[gnu::always_inline]] constexpr bool IsOfBlocks(TileFormat format, const Tiles& w) {
  return w.leaf_tiles != 0 && w.leaf_tiles * TileSteps(format) % kTallBlock == 0;
}
// What gate and up take beside that, but for scaled ones: any leaves of a k of one part, which ends with a whole tile or half a one
// of four steps.
constexpr bool IsRagged(TileFormat format, const Tiles& w) {
  return !IsOfBlocks(format, w) && w.parts == 1 && w.steps % 2 == 0 && TilesOf(format, w.steps) >= kPartLeaves;
}
// What a code's p and q may be made of there: all that a weight of one format has, and of several.
constexpr bool TallTakesFactors(TileFormat format, TileCode code, TileFactors factors) {
  const bool none = factors == TileFactors::kNone, f16 = factors == TileFactors::kF16, nibble = format == TileFormat::kNibble;
  switch (code) {
    case TileCode::kAffine:
      return none || factors == TileFactors::kBytes || (nibble && f16);
    case TileCode::kScaled:
      return none || f16;
    case TileCode::kHalves:
      return none || factors == TileFactors::kSignedBytes;
    case TileCode::kE2m1:
      return factors == TileFactors::kE4m3;
    case TileCode::kIq4Nl:
      return f16;
    default:
      return none;
  }
}
constexpr bool TallTakes(TileFormat format, const Tiles& w, TallKind kind, Taken taken) {
  if (format == TileFormat::kBf16Pair) return false;
  const bool gate_up = kind == TallKind::kGateUp || kind == TallKind::kGateUpAny;
  if (HasCodes(format)) {
    // Gate and up of a pair of tiles are made together.
    if ((gate_up && w.code == TileCode::kByTile) || !TallTakesFactors(format, w.code, w.factors)) return false;
  }
  if (taken == Taken::kTiled && format != TileFormat::kBf16) return false;
  if (taken == Taken::kRing && format != TileFormat::kMxfp4 && !IsFp8(format)) return false;
  if (IsOfBlocks(format, w)) return true;
  if (RowsAreMade(taken) || kind == TallKind::kMatmul) return false;
  if (gate_up) return !HasCodes(format) && IsRagged(format, w);
  for (uint32_t part = 0, begin = 0; part < w.parts; begin = PartEnd(w, part++)) {
    const uint32_t steps = PartEnd(w, part) - begin;
    if (steps % TileSteps(format) != 0 || steps / TileSteps(format) < kPartLeaves) return false;
  }
  return w.steps / 2 + w.parts * kPartLeaves <= kTallChunks;
}
constexpr uint32_t TallOutputs(TallKind kind) { return kind == TallKind::kMatmul ? 16 : 8; }
constexpr uint32_t TallRows(Taken taken) {
  return taken == Taken::kTiled || taken == Taken::kRing ? 128 : taken == Taken::kRounded ? 96 : 64;
}
// Of ragged ones as many as registers hold.
constexpr uint32_t TallRaggedRows(TileFormat format, Taken taken) {
  if (format == TileFormat::kMxfp4) return TallRows(taken);
  return format == TileFormat::kBf16 && taken == Taken::kBoth ? 48 : 64;
}
constexpr uint32_t TallRowsOf(TileFormat format, const Tiles& w, TallKind kind, Taken taken) {
  const bool gate_up = kind == TallKind::kGateUp || kind == TallKind::kGateUpAny;
  return gate_up && IsRagged(format, w) ? TallRaggedRows(format, taken) : TallRows(taken);
}
// Which workgroup has what. Those whose numbers are alike modulo kDies share a die's cache, and are to want the same: a
// die has blocks of outputs of its own, and takes kGroup of them with all blocks of rows before the next kGroup.
struct TallGrid {
  static constexpr uint32_t kDies = 8, kGroup = 4;
  uint32_t rows, group, groups;  // blocks of rows; blocks of outputs in a group, and a die's groups

  [[gnu::always_inline]] constexpr TallGrid(uint32_t output_blocks, uint32_t row_blocks) : rows(row_blocks) {
    const uint32_t own = (output_blocks + kDies - 1) / kDies;
    group = own < kGroup ? own : kGroup;
    groups = group == 0 ? 0 : (own + group - 1) / group;
  }
  [[gnu::always_inline]] constexpr uint32_t units() const { return groups * group * rows * kDies; }
  // The block of outputs of a unit, which may be beyond the last, and that of rows.
  [[gnu::always_inline]] constexpr uint32_t output(uint32_t unit) const {
    const uint32_t own = unit / kDies;
    return (own / (group * rows) * group + own % group) * kDies + unit % kDies;
  }
  [[gnu::always_inline]] constexpr uint32_t row(uint32_t unit) const { return unit / kDies / group % rows; }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_TALL_ARGS_H_
