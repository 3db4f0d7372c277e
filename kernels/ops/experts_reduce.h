// SPDX-License-Identifier: MIT
//
// Routed experts whose sums go to x, and the all-reduce behind them, in one launch of few rows.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_

#include "kernels/ops/experts.h"
#include "kernels/ops/reduce.h"

namespace mainarch::kernels {

// A workgroup tells all ranks each output tile of down as it is made, and its own GPU too: every element in one word
// with its epoch, as in ops/reduce.h. So between workgroups of a launch, too, there is no fence and no counter, and no
// way by a sum of the GPU's own to the other ranks: of each chunk of each row one workgroup waits for the words of all.
//
// Words of this GPU's own lie twice, by turns over launches of experts. A half is written again two launches later, and
// no launch begins before the one before has ended, for which all of its words have been read.
//
// All workgroups are there before the first one reaches down, for they wait for each other; who waits here has told
// all that it has. Those that wait for other ranks are no more than there are chunks of rows, and hold no more room on
// the GPU than a reduction of its own would: whatever else it has to run for another context, experts that must all
// be there too, finds as much room as beside that.
class ExpertSums {
 public:
  static constexpr bool kFew = true;

  DEVICE explicit ExpertSums(const ExpertsArgs& experts) {
    const StepView step(experts.step);
    launch_ = step.index() * experts.turns + experts.turn;
    epoch_ = EpochOf(ReadArgumentsAgain<ExpertsReduceArgs>().reduce, step);
  }

  DEVICE void Put(const ExpertsArgs&, uint32_t row, uint32_t column, float value) const {
    const ExpertsReduceArgs args = ReadArgumentsAgain<ExpertsReduceArgs>();
    const ReduceArgs& reduce = args.reduce;
    const uint64_t at = uint64_t{row} * reduce.stride + column;
    const uint64_t bits = BitCast<uint32_t>(value);
    if (reduce.ranks > 1) Reduce::PushWord(reduce, at, epoch_, bits);
    StoreFlag<Scope::kDevice>(Own(args) + at, uint64_t{FlagOf(launch_)} << 32 | bits);
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
      RowPiece sum = OwnOf(args, unit);
      if (args.reduce.ranks > 1) Reduce::AddRanks(args.reduce, unit, epoch_, sum);
      StoreSum(ReadArgumentsAgain<ExpertsReduceArgs>().reduce, unit, t, residual, weights, sum, arena);
    }
    BarrierLds();
  }

 private:
  DEVICE Global<uint64_t> Own(const ExpertsReduceArgs& args) const {
    return At(args.words) + (launch_ & 1) * (uint64_t{kMatmulReduceRows} * args.reduce.stride);
  }
  DEVICE RowPiece OwnOf(const ExpertsReduceArgs& args, const ReduceUnit& unit) const {
    if (!unit.real) return RowPiece{0, 0};
    return AwaitSplits<kPieceColumns, 1>(Own(args) + unit.at, 1, 0, FlagOf(launch_));
  }

  uint32_t launch_, epoch_;
};

template <TileFormat kFormat, bool kRounded = false, bool kAny = false, TileFormat kDown = kFormat>
struct ExpertsReduce {
  using Args = ExpertsReduceArgs;
  using Products = Experts<kFormat, kRounded, kAny, kDown, ExpertSums>;
  static constexpr uint32_t kLdsBytes = Products::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    FetchArguments<Args>();
    Products::Run(args.any.experts, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_
