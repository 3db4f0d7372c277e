// SPDX-License-Identifier: MIT
//
// Routed experts whose sums go to x, and the all-reduce behind them, in one launch of few rows.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_

#include "kernels/ops/experts.h"
#include "kernels/ops/reduce.h"

namespace mainarch::kernels {

// A workgroup tells all ranks each output tile of down as it is made, and its own GPU too (ops/told.h). So between
// workgroups of a launch, too, there is no fence and no counter, and no way by a sum of the GPU's own to the other ranks:
// of each chunk of each row one workgroup waits for the words of all.
//
// All workgroups are there before the first one reaches down, for they wait for each other; who waits here has told
// all that it has. Those that wait for other ranks are no more than there are chunks of rows, and hold no more room on
// the GPU than a reduction of its own would: whatever else it has to run for another context, experts that must all
// be there too, finds as much room as beside that.
class ExpertSums {
 public:
  static constexpr bool kFew = true;

  DEVICE explicit ExpertSums(const ExpertsArgs& experts) : index_(StepView(experts.step).index()) {}

  DEVICE void Put(const ExpertsArgs&, uint32_t row, uint32_t column, float value) const {
    const ExpertsReduceArgs args = ReadArgumentsAgain<ExpertsReduceArgs>();
    const StepView step(args.reduce.step);
    if (args.reduce.ranks > 1) Reduce::PushElement(args.reduce, row, column, EpochOf(args.reduce, step), value);
    Told(args).Put(0, row, column, value);
  }

  // x += what all have put.
  DEVICE void Add(uint32_t worker, uint32_t workers, Arena arena) const {
    const uint32_t chunks = ReadArgumentsAgain<ExpertsReduceArgs>().reduce.chunks;
    const uint32_t total = StepView(ReadArgumentsAgain<ExpertsReduceArgs>().reduce.step).rows() * chunks;
    // From the last workgroup on: the first ones have most to do of gate and up.
#pragma clang loop unroll(disable)
    for (uint32_t t = workers - 1 - worker; t < total; t += workers) {
      const ExpertsReduceArgs args = ReadArgumentsAgain<ExpertsReduceArgs>();
      const ReduceUnit unit(args.reduce, t);
      const RowPiece residual = ResidualOf(args.reduce, unit), weights = WeightsOf(args.reduce, unit, t);
      RowPiece sum = {0, 0};
      if (unit.real) sum = Told(args).Await<kPieceColumns, 1>(unit.row, unit.column, 1);
      if (args.reduce.ranks > 1) {
        Reduce::AddRanks(args.reduce, unit, EpochOf(args.reduce, StepView(args.reduce.step)), sum);
      }
      StoreSum(ReadArgumentsAgain<ExpertsReduceArgs>().reduce, unit, t, residual, weights, sum, arena);
    }
    BarrierLds();
  }

 private:
  DEVICE ToldSums Told(const ExpertsReduceArgs& args) const { return ToldSums(args.told, index_, args.reduce.stride); }

  uint32_t index_;  // of the step
};

template <TileFormat kFormat, Taken kTaken = Taken::kBoth, bool kAny = false, TileFormat kDown = kFormat>
struct ExpertsReduce {
  using Args = ExpertsReduceArgs;
  using Products = Experts<kFormat, kTaken, kAny, kDown, ExpertSums>;
  static constexpr uint32_t kLeastWaves = Products::kLeastWaves;
  static constexpr uint32_t kLdsBytes = Products::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    FetchArguments<Args>();
    Products::Run(args.any.experts, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_
