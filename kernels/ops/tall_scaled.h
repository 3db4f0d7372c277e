// SPDX-License-Identifier: MIT
//
// Of products of many rows (ops/tall.h): weights of MXFP4, or of fp8 in blocks of 128 columns, by rows as MXFP8, both as they
// are (Taken::kScaled). To the bit what AddScaledTile makes of a tile, leaf by leaf.
//
// Rows are made codes once, by a launch of their own. A chunk is a tile, 128 columns: it is asked for four chunks ahead, goes
// to LDS two chunks ahead, and comes from there one.
#ifndef MAINARCH_KERNELS_OPS_TALL_SCALED_H_
#define MAINARCH_KERNELS_OPS_TALL_SCALED_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

inline constexpr uint32_t kScaledSteps = TileSteps(TileFormat::kMxfp4);  // of a chunk

struct ScaleRows {
  using Args = TakenRowsArgs;
  static constexpr uint32_t kLdsBytes = 0;

  // A thread makes eight codes; four neighbouring ones have a step.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t pieces = args.steps * 4, total = StepView(args.step).rows() * pieces;
    const uint32_t row_bytes = ScaledRowBytes(args.steps);
    for (uint32_t t = worker * kThreads + ThreadId(); t < total; t += workers * kThreads) {
      const uint32_t row = t / pieces, piece = t - row * pieces, step = piece / 4, part = piece % 4;
      const auto x = reinterpret_cast<Global<const uint8_t>>(At(args.x) + uint64_t{row} * args.x_stride);
      const u32x4 values = *reinterpret_cast<Global<const u32x4>>(x + (step * kSplitStepBytes + part * 16));
      const uint32_t scale = quant::Mxfp8Scale(QuadMax(isa::LargestMagnitude(values)));
      const Global<uint8_t> out = At(args.out) + uint64_t{row} * row_bytes;
      *reinterpret_cast<Global<u32x2>>(out + (step * 4 + ScaledPart(part)) * 8) = isa::Mxfp8Codes(values, scale);
      if (part == 0) out[args.steps * kStepColumns + step] = static_cast<uint8_t>(scale);
    }
  }
};

// A workgroup's rows of x in LDS, in two buffers of a chunk each: of a row codes, and then the factors of its blocks.
template <uint32_t kTiles, uint32_t kOneTurn>
struct TallRowsInLds<Taken::kScaled, kTiles, kOneTurn> {
  static constexpr uint32_t kRowTiles = kTiles, kRows = kRowTiles * kTileRows, kWords = 1;
  static constexpr uint32_t kCodes = kScaledSteps * kStepColumns;
  static constexpr uint32_t kStride = kCodes + 16;  // neighbouring rows lie in other banks
  static constexpr uint32_t kBufferBytes = kRows * kStride, kLdsBytes = 2 * kBufferBytes;
  static constexpr uint32_t kPerRow = kCodes / 16, kLoads = kRows * kPerRow / kThreads;  // words of 16 bytes; of a thread
  static constexpr uint32_t kRowsApart = kThreads / kPerRow;  // from one of a thread's words to its next
  static_assert(kRows * kScaledSteps == kThreads);            // it has one factor

  Global<const uint8_t> x;
  Lds<uint8_t> lds;
  uint32_t from[kLoads], factor_from, to, factor_to;  // offsets: in x and in a buffer, of what this thread writes
  uint32_t read, factor_read;                         // and of what it reads
  u32x4 words[2][kLoads];                             // on their way: of chunks in turns
  uint32_t factors[2];

  template <class List>
  DEVICE TallRowsInLds(const MatmulArgs& args, const List& list, Lds<uint8_t> buffers)
      : x(reinterpret_cast<Global<const uint8_t>>(At(args.x))), lds(buffers) {
    const uint32_t word = ThreadId() % kPerRow, row = ThreadId() / kPerRow, bytes = args.x_stride * 4;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kLoads; ++i) from[i] = list.In(args, row + i * kRowsApart) * bytes + word * 16;
    to = row * kStride + word * 16;
    read = LaneRow() * kStride + LanePart() * 16;
    const uint32_t step = ThreadId() % kScaledSteps, of = ThreadId() / kScaledSteps;
    factor_from = list.In(args, of) * bytes + args.w.steps * kStepColumns + step;
    factor_to = of * kStride + kCodes + step;
    factor_read = LaneRow() * kStride + kCodes + LanePart();
  }
  // Word i of the chunk that begins at `step`; with the last its factors.
  template <uint32_t kTurn>
  DEVICE void Ask(uint32_t i, uint32_t step) {
    words[kTurn][i] = *reinterpret_cast<Global<const u32x4>>(x + (from[i] + step * kStepColumns));
    if (i + 1 == kLoads) factors[kTurn] = x[factor_from + step];
  }
  // It goes into the buffer that begins at `at`.
  template <uint32_t kTurn>
  DEVICE void Put(uint32_t i, uint32_t at) const {
    *reinterpret_cast<Lds<u32x4>>(lds + (to + at) + i * kRowsApart * kStride) = words[kTurn][i];
    if (i + 1 == kLoads) lds[factor_to + at] = static_cast<uint8_t>(factors[kTurn]);
  }
  // What this lane has of a tile of rows in the buffer that begins at `at`.
  DEVICE isa::Mxfp8Operand Get(uint32_t at, uint32_t tile) const {
    const Lds<const uint8_t> own = lds + (read + at) + tile * kTileRows * kStride;
    const auto words_at = reinterpret_cast<Lds<const u32x4>>(own);
    const uint32_t block = lds[(factor_read + at) + tile * kTileRows * kStride];
    return isa::Mxfp8OperandOf(words_at[0], words_at[kCodes / 2 / 16], block);
  }
};

// A tile of a weight as it comes from memory (MXFP4: E8M0 of its row's four steps; fp8: the factor of all), and as it is multiplied.
// `kApart`: products are not added by the instruction, but later, by Add; so what multiplies them is asked for later, too.
template <TileFormat kFormat>
struct TallScaledTile {
  static constexpr bool kApart = false;
  u32x4 codes;
  uint32_t scales;
  struct Made {
    u32x4 codes;
    uint32_t scale;
    DEVICE f32x4 Multiply(const isa::Mxfp8Operand& x, f32x4 sum) const { return isa::Mxfp4ByMxfp8(codes, scale, x, sum); }
  };

  DEVICE void Load(const TileRow& w, uint32_t step) {
    codes = *reinterpret_cast<Global<const u32x4>>(w.data + (step * StepBytes(kFormat) + LaneId() * 16));
    scales = *reinterpret_cast<Global<const uint32_t>>(w.scales + (step / 4 * TileScaleBytes(kFormat) + LaneRow() * 4));
  }
  DEVICE Made Make() const { return {isa::TransposeRows(codes), scales >> LanePart() * 8}; }
};
template <>
struct TallScaledTile<TileFormat::kFp8Blocks> {
  static constexpr bool kApart = true;
  u32x4 codes, low;
  f32x2 factors;  // of two steps, which are alike
  struct Made {
    i32x8 codes;
    DEVICE f32x4 Multiply(const isa::Mxfp8Operand& x, f32x4) const { return isa::Fp8ByMxfp8(codes, x); }
  };

  DEVICE void Load(const TileRow& w, uint32_t step) {
    const auto from = reinterpret_cast<Global<const u32x4>>(w.data + (step * StepBytes(TileFormat::kFp8Blocks) + LaneId() * 16));
    codes = from[0];
    low = from[kWave];
  }
  // `at`: step * 4, in a vector register: the scalar unit's are too few.
  DEVICE void LoadFactors(const TileRow& w, uint32_t at) { factors = *reinterpret_cast<Global<const f32x2>>(w.scales + at); }
  DEVICE Made Make() const { return {isa::Fp8Operand(codes, low)}; }
  // AddScaledBlock, two at once.
  DEVICE f32x4 Add(f32x4 products, f32x4 sum) const {
    f32x4 out;
    out.lo = __builtin_elementwise_fma(products.lo, factors, sum.lo);
    out.hi = __builtin_elementwise_fma(products.hi, factors, sum.hi);
    return MadeBefore(out);  // here, not when all are multiplied
  }
};

// A wave's sums, of kOut output tiles. `kLevels`: of the tree, at most. `kOdd`: leaves are of an odd number of chunks, and begin by
// either turn. (One code for both would have to bring what they leave into the same registers, which are too few.)
template <TileFormat kFormat, class RowsInLds, uint32_t kOut, uint32_t kLevels, bool kOdd>
struct TallScaledCore {
  using Rows = RowsInLds;
  using Tile = TallScaledTile<kFormat>;
  static constexpr uint32_t kOutputs = kOut, kRowTiles = Rows::kRowTiles;

  const TileRow (&rows)[kOut];
  Rows* x;
  Tile tiles[2][kOut];              // of chunks in turns
  isa::Mxfp8Operand in[kRowTiles];  // of the present chunk
  TallTree<Rows, kOut, kLevels> tree;

  DEVICE TallScaledCore(const TileRow (&of)[kOut], Rows* rows_of_x) : rows(of), x(rows_of_x) {}
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return tree.sums[0][output][tile]; }

  // Of all leaves: four a part, each of LeafTiles tiles.
  DEVICE void Sum(const Tiles& w) {
    const uint32_t last = w.steps - kScaledSteps;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      tiles[0][o].Load(rows[o], 0);
      tiles[1][o].Load(rows[o], Min(kScaledSteps, last));
      if constexpr (Tile::kApart) {
        tiles[0][o].LoadFactors(rows[o], MadeBefore(0u));
        tiles[1][o].LoadFactors(rows[o], MadeBefore(Min(kScaledSteps, last) * 4));
      }
    }
    Bring<0>(0);
    Bring<1>(Min(kScaledSteps, last));
    Put<0>(0);
    Bring<0>(Min(2 * kScaledSteps, last));
    Put<1>(Rows::kBufferBytes);
    Bring<1>(Min(3 * kScaledSteps, last));
    BarrierLds();
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < kRowTiles; ++r) in[r] = x->Get(0, r);
    BarrierLds();
    Leaves(w, last);
  }

 private:
  DEVICE void Leaves(const Tiles& w, uint32_t last) {
    const uint32_t leaves = w.parts * kPartLeaves;
    uint32_t step = 0;
#pragma clang loop unroll(disable)
    for (uint32_t leaf = 0; leaf < leaves; leaf += kOdd ? 2 : 1) {
      OneLeaf<0>(w, leaf, leaves, step, last);
      if constexpr (kOdd) OneLeaf<1>(w, leaf + 1, leaves, step, last);
    }
  }
  // `kFirst`: the turn of its first chunk.
  template <uint32_t kFirst>
  DEVICE void OneLeaf(const Tiles& w, uint32_t leaf, uint32_t leaves, uint32_t& step, uint32_t last) {
    tree.Clear();
#pragma clang loop unroll(disable)
    for (uint32_t left = LeafTiles(kFormat, w) / 2; left > 0; --left) {
      Chunk<kFirst>(step, last);
      Chunk<1 - kFirst>(step, last);
    }
    if constexpr (kOdd) Chunk<kFirst>(step, last);
    tree.EndLeaf(leaf, leaves);
  }
  template <uint32_t kTurn>
  DEVICE void Bring(uint32_t step) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x->template Ask<kTurn>(i, step);
  }
  template <uint32_t kTurn>
  DEVICE void Put(uint32_t at) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x->template Put<kTurn>(i, at);
  }

  template <uint32_t kTurn>
  DEVICE void AddApart(uint32_t o, uint32_t r, f32x4 products, uint32_t factors_at) {
    tree.sums[0][o][r] = tiles[kTurn][o].Add(products, tree.sums[0][o][r]);
    if (r + 1 == kRowTiles) tiles[kTurn][o].LoadFactors(rows[o], factors_at);
  }

  // The chunk that begins at `step`, the kTurn-th of two. Weights are asked for two chunks ahead, x four.
  template <uint32_t kTurn>
  DEVICE void Chunk(uint32_t& step, uint32_t last) {
    const uint32_t next = Min(step + 2 * kScaledSteps, last), after = Min(step + 4 * kScaledSteps, last);
    constexpr uint32_t kOwn = kTurn * Rows::kBufferBytes, kOther = Rows::kBufferBytes - kOwn;
    const uint32_t factors_at = MadeBefore(next * 4);
    f32x4 products[kOut][kRowTiles];  // of fp8, which are added while the next output tile is multiplied: then they are there
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const typename Tile::Made w = tiles[kTurn][o].Make();
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) {
        if constexpr (Tile::kApart) {
          products[o][r] = w.Multiply(in[r], f32x4{0, 0, 0, 0});
          if (o > 0) AddApart<kTurn>(o - 1, r, products[o - 1][r], factors_at);
        } else {
          tree.sums[0][o][r] = w.Multiply(in[r], tree.sums[0][o][r]);
        }
        KeepOrder();
        // Codes of two chunks ahead, to where this one's were.
        constexpr uint32_t kEach = kOut * kRowTiles / Rows::kLoads;
        const uint32_t place = o * kRowTiles + r;
        if (place % kEach == 0) {
          x->template Put<kTurn>(place / kEach, kOwn);
          x->template Ask<kTurn>(place / kEach, after);
        }
        if (r + 1 == kRowTiles) tiles[kTurn][o].Load(rows[o], next);
        if (o + 1 == kOut) in[r] = x->Get(kOther, r);
        KeepOrder();
      }
    }
    if constexpr (Tile::kApart) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) AddApart<kTurn>(kOut - 1, r, products[kOut - 1][r], factors_at);
    }
    step += kScaledSteps;
    BarrierLds();
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_SCALED_H_
