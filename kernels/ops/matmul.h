// SPDX-License-Identifier: MIT
//
// A product of rows with a weight in tiles (ops/tiles.h), or of a gate and up.
#ifndef MAINARCH_KERNELS_OPS_MATMUL_H_
#define MAINARCH_KERNELS_OPS_MATMUL_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/gating.h"
#include "kernels/ops/tiles.h"
#include "kernels/ops/told.h"

namespace mainarch::kernels {

// Neighbouring leaves of so few tiles each that a batch holds more than one of them: they are asked
// for as if they were one. Of each the same sum as LeafSums gives.
template <TileFormat kFormat, Columns kColumns>
struct ShortLeaves {
  static constexpr uint32_t kMost = kColumns == Columns::kMany ? 4 : 8;
  static constexpr uint32_t kBatch = kFormat == TileFormat::kBf16     ? kMost
                                     : kFormat == TileFormat::kNibble || kFormat == TileFormat::kFp8Blocks ? kMost / 4
                                                                      : kMost / 2;
  static constexpr uint32_t kWords = Operand<kColumns>::kWords;

  // `tiles`: of a leaf. `first`: the first leaf's place among all of k.
  DEVICE ShortLeaves(TileRow row, uint32_t tiles, uint32_t first, uint32_t leaves,
                     const Operand<kColumns>& x)
      : row_(row), x_(x), tiles_(tiles), leaves_(leaves), step_(first * tiles * kSteps) {
    Clear();
    uint32_t left = leaves * tiles;
#pragma clang loop unroll(disable)
    for (; left >= kBatch; left -= kBatch) Take<kBatch>();
    if constexpr (kBatch > 4) {
      if (left & 4) Take<4>();
    }
    if constexpr (kBatch > 2) {
      if (left & 2) Take<2>();
    }
    if constexpr (kBatch > 1) {
      if (left & 1) Take<1>();
    }
  }
  DEVICE f32x4 Sum() const { return tree_.Sum(leaves_); }

 private:
  static constexpr uint32_t kSteps = TileSteps(kFormat);

  template <uint32_t kTiles>
  DEVICE void Take() {
    WholeTiles<kFormat, kTiles, /*kByFours=*/true> tiles;
    tiles.Load(row_, step_);
    KeepOrder();
    TileInputs<kFormat, kColumns, kTiles> in;
    in.Load(x_, step_);
    KeepOrder();
    if constexpr (IsScaled(kColumns)) {
      isa::Mxfp8Operand x;
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) {
        x = in.Scaled(t, x);
        AddScaledTile(tiles, t, step_, x, sums_);
        if (++done_ == tiles_) EndLeaf();
      }
    } else {
      tiles.MakeScales();
      WithCode<kFormat>(tiles.row.Code(), [&](auto tag) {
#pragma clang loop unroll(full)
        for (uint32_t t = 0; t < kTiles; ++t) {
          AddTile<kFormat, kTiles, kColumns>(tiles, t, step_, in.of[t], sums_, tag);
          if (++done_ == tiles_) EndLeaf();
        }
      });
    }
    step_ += kTiles * kSteps;
  }

  DEVICE void EndLeaf() {
    tree_.Push(index_++, JoinColumns<kColumns>(sums_));
    Clear();
  }
  DEVICE void Clear() {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kWords; ++i) sums_[i] = f32x4{0, 0, 0, 0};
    done_ = 0;
  }

  const TileRow row_;
  const Operand<kColumns> x_;
  const uint32_t tiles_, leaves_;
  uint32_t step_, done_ = 0, index_ = 0;  // tiles of the present leaf, and which it is
  f32x4 sums_[kWords];
  LeafTree tree_;
};

// Where sums go: to memory, for who takes them in another launch, or in words, for who waits for them.
struct PlainSums {
  DEVICE static void Put(const MatmulArgs& args, const StepView& step, uint32_t split, uint32_t row, uint32_t column,
                         float value) {
    if (args.told.words.address != 0) {
      ToldSums(args.told, step.index(), args.out_stride).Put(split, row, column, value);
    } else {
      At(args.out)[(uint64_t{split} * args.split_rows + row) * args.out_stride + column] = value;
    }
  }
};

// `kAny`: the kernel's arguments are GateUpAnyArgs, which it reads what follows the sums from.
template <TileFormat kFormat, bool kGateUp, Taken kTaken = Taken::kBoth, bool kAny = false, class Sums = PlainSums>
struct Matmul {
  using Args = MatmulArgs;
  static constexpr uint32_t kLdsBytes = kTileLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    if (!kGateUp && (args.flags & kMatmulLogitRows)) return Of<true>(args, worker, workers, arena);
    Of<false>(args, worker, workers, arena);
  }
  template <bool kLogits>
  DEVICE static void Of(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    if constexpr (kTaken == Taken::kRounded) {
      Units<Columns::kRounded, kLogits>(args, worker, workers, arena);
    } else if (args.rows <= kFewRows) {
      Units<ColumnsOf(kTaken, true), kLogits>(args, worker, workers, arena);
    } else {
      Units<ColumnsOf(kTaken, false), kLogits>(args, worker, workers, arena);
    }
  }

  // A unit: an output tile, some of the parts of k, a block of rows.
  template <Columns kColumns, bool kLogits>
  DEVICE static void Units(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t rows = kLogits ? step.logit_rows() : step.rows();
    const uint32_t shift = kGateUp ? 0 : LogOf(args.splits), units = args.w.outputs << shift;
    const bool one_block = args.rows <= kTileRows && !kLogits;
    const uint32_t total = one_block ? units : units * CeilDiv(rows, kTileRows);
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t block = one_block ? 0 : t / units, unit = t - block * units;
      const uint32_t output = unit >> shift, split = unit & ((1u << shift) - 1);
      const uint32_t first = block * kTileRows, row = first + ThreadId() / kTileRows;
      const uint32_t source = kLogits ? step.logit_row(Min(row, rows - 1)) : row;
      const RowFactor factor(args.norm, source, row < args.rows);
      uint32_t mine = Min(first + Operand<kColumns>::Row(), args.rows - 1);
      if (kLogits) mine = step.logit_row(Min(mine, rows - 1));
      const auto x = Operand<kColumns>::Of(At(args.x), args.x_stride, mine);
      f32x4 sums[kGateUp ? 2 : 1];
      Sum<kColumns>(args, output, split, args.w.parts >> shift, x, sums);
      const Args after = Again(args);
      const float value = Value(after, sums, output, factor, arena);
      if (row < rows) Store(after, step, kLogits, output, split, row, value);
    }
  }
  // The tables that decode four bits where the chip does not are in scalar registers, and leave no room
  // beside the leaves for what comes after them; nor do the ways of codes.
  DEVICE static Args Again(const Args& args) {
    constexpr bool kTables = kFormat == TileFormat::kMxfp4 && !isa::kFacts.has_scaled_mfma;
    if constexpr (kTables || HasCodes(kFormat) || kTaken == Taken::kScaled) {
      return ReadArgumentsAgain<Args>();
    } else {
      return args;
    }
  }
  // Of a power of two.
  DEVICE static uint32_t LogOf(uint32_t n) { return static_cast<uint32_t>(__builtin_ctz(n)); }

  template <Columns kColumns>
  DEVICE static void Sum(const Args& args, uint32_t output, uint32_t split, uint32_t parts,
                         const Operand<kColumns>& x, f32x4 (&to)[kGateUp ? 2 : 1]) {
    if constexpr (kGateUp) {
      const WaveSums<kFormat, kColumns, 2> sums(args.w, 2 * output, x);
      to[0] = sums.of[0];
      to[1] = sums.of[1];
    } else {
      to[0] = Leaves<kColumns>(args.w, RowOf<kFormat>(args.w, output), split * parts, parts, x);
    }
  }
  DEVICE static float Value(const Args& args, const f32x4 (&sums)[kGateUp ? 2 : 1],
                            uint32_t output, const RowFactor& factor, Arena arena) {
    GatingArgs any;
    Gating gating;
    if constexpr (kAny) {
      any = ReadArgumentsAgain<GateUpAnyArgs>().gating;
      gating = Gating(any, 0, output * kTileRows + ThreadId() % kTileRows);
    }
    const float first = AddWaves(sums[0], arena.Get<float>());
    const float by = factor.Value(args.norm);
    if constexpr (!kGateUp) return first * by;
    const float up = AddWaves(sums[kGateUp ? 1 : 0], arena.Get<float>());
    if constexpr (kAny) return gating.Value(any, first * by, up * by);
    return Silu(first * by) * (up * by);
  }

  // The wave's leaves of parts [first, first + parts).
  template <Columns kColumns>
  DEVICE static f32x4 Leaves(const Tiles& w, TileRow row, uint32_t first, uint32_t parts,
                             const Operand<kColumns>& x) {
    using Short = ShortLeaves<kFormat, kColumns>;
    constexpr uint32_t kTwo = kFormat == TileFormat::kFp8Blocks ? 2 : 1;  // as LeafTiles, in which codes took more registers
    if (parts > 1 && w.leaf_tiles != 0 && w.leaf_tiles < kTwo * Short::kBatch) {
      return Short(row, w.leaf_tiles / kTwo, first * kPartLeaves + WaveId() * parts, parts, x).Sum();
    }
    const TileRow rows[1] = {row};
    LeafTree tree;
    ForEachLeaf<kFormat>(w, first, parts, [&](uint32_t i, Leaf<kFormat> leaf) {
      const LeafSums<kFormat, kColumns, 1> sums(rows, leaf, x);
      tree.Push(i, sums.of[0]);
    });
    return tree.Sum(parts);
  }

  DEVICE static void Store(const Args& args, const StepView& step, bool logits, uint32_t output,
                           uint32_t split, uint32_t row, float value) {
    const uint32_t column = output * kTileRows + ThreadId() % kTileRows;
    if constexpr (kGateUp) {
      StoreSplit(At(args.out) + uint64_t{row} * args.out_stride, column, value);
    } else {
      const uint32_t to = row + (logits ? Parity(step.index()) * args.parity_rows : 0);
      Sums::Put(args, step, split, to, column, value);
    }
  }
};

// A gate and up with biases, or another activation.
template <TileFormat kFormat, Taken kTaken = Taken::kBoth>
struct GateUpAny {
  using Args = GateUpAnyArgs;
  using Product = Matmul<kFormat, /*kGateUp=*/true, kTaken, /*kAny=*/true>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MATMUL_H_
