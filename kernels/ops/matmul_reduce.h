// SPDX-License-Identifier: MIT
//
// A product whose sums go to x, and the all-reduce behind it, in one launch of few rows.
#ifndef MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_
#define MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_

#include "kernels/ops/matmul.h"
#include "kernels/ops/reduce.h"

namespace mainarch::kernels {

// A workgroup tells every element of what it has made (ops/told.h). Of each chunk of x one workgroup waits for the words of
// all that share k, adds them, and goes on as ops/reduce.h does; where nobody shares k, each has told the other ranks
// itself (`kPushes`: if scalar registers have room for so many addresses).
//
// Words are written again by the next such launch, which begins when this one has ended, and all of them have been read.
// Who waits has put all that it has, and those that wait are no more than kReduceChunks: so all others find room. Ranks
// take chunks in the same order, and push one before they wait for it.
template <bool kPushes>
struct ProductSums {
  DEVICE static void Put(const MatmulArgs& product, const StepView& step, uint32_t split, uint32_t row, uint32_t column,
                         float value) {
    if (kPushes && product.splits == 1) {
      const ReduceArgs reduce = ReadArgumentsAgain<MatmulReduceArgs>().reduce;
      if (reduce.ranks > 1) Reduce::PushElement(reduce, row, column, EpochOf(reduce, step), value);
    }
    ToldSums(product.told, step.index(), product.out_stride).Put(split, row, column, value);
  }

  DEVICE static void Add(uint32_t worker, uint32_t workers, Arena arena) {
    const MatmulReduceArgs args = ReadArgumentsAgain<MatmulReduceArgs>();
    const StepView step(args.reduce.step);
    const uint32_t total = step.rows() * args.reduce.chunks, waiting = Min(workers, kReduceChunks);
    const uint32_t own = workers - 1 - worker;  // from the last workgroup on, which has least to do
    if (own >= waiting) return;
#pragma clang loop unroll(disable)
    for (uint32_t t = own; t < total; t += waiting) OneUnit(t, arena);
    BarrierLds();
  }

 private:
  DEVICE static void OneUnit(uint32_t t, Arena arena) {
    const MatmulReduceArgs args = ReadArgumentsAgain<MatmulReduceArgs>();
    const StepView step(args.reduce.step);
    const ReduceUnit unit(args.reduce, t);
    const RowPiece residual = ResidualOf(args.reduce, unit), weights = WeightsOf(args.reduce, unit, t);
    RowPiece sum = {0, 0};
    if (unit.real) sum = Await(ToldSums(args.product.told, step.index(), args.product.out_stride), unit, args.product.splits);
    if (args.reduce.ranks > 1) {
      const uint32_t epoch = EpochOf(args.reduce, step);
      if (!kPushes || args.product.splits > 1) Reduce::PushSum(args.reduce, unit, epoch, sum);
      Reduce::AddRanks(args.reduce, unit, epoch, sum);
    }
    StoreSum(ReadArgumentsAgain<MatmulReduceArgs>().reduce, unit, t, residual, weights, sum, arena);
  }

  DEVICE static RowPiece Await(const ToldSums& told, const ReduceUnit& unit, uint32_t splits) {
    if (splits == 1) return told.Await<kPieceColumns, 1>(unit.row, unit.column, 1);
    if (splits == 2) return told.Await<kPieceColumns, 2>(unit.row, unit.column, 2);
    return told.Await<kPieceColumns>(unit.row, unit.column, splits);
  }
};

template <TileFormat kFormat, Taken kTaken = Taken::kBoth>
struct MatmulReduce {
  using Args = MatmulReduceArgs;
  using Sums = ProductSums</*kPushes=*/!HasCodes(kFormat)>;
  using Product = Matmul<kFormat, /*kGateUp=*/false, kTaken, /*kAny=*/false, Sums>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
    Sums::Add(worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_
