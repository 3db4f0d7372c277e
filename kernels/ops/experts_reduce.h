// SPDX-License-Identifier: MIT
//
// Routed experts whose sums go to x, and the all-reduce behind them, in one launch of few rows (ops/last_reduce.h).
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_

#include "kernels/ops/experts.h"
#include "kernels/ops/last_reduce.h"

namespace mainarch::kernels {

// All workgroups are there before the first one reaches down, for they wait for each other. Those that wait for other
// ranks keep none of these waiting, and hold no more room on the GPU than a reduction of its own would: a workgroup a
// chunk of x at most. So whatever else the GPU has to run for another context, experts that must all be there too,
// finds as much room as beside that.
template <TileFormat kFormat, bool kRounded = false, bool kAny = false, TileFormat kDown = kFormat>
struct ExpertsReduce {
  using Args = ExpertsReduceArgs;
  using Products = Experts<kFormat, kRounded, kAny, kDown, /*kFew=*/true>;
  static constexpr uint32_t kLdsBytes = Products::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Products::Run(args.any.experts, worker, workers, arena);
    LastReduce<ExpertsReduce>::Run(worker, workers, arena);
  }

  // For LastReduce.
  DEVICE static uint32_t OutputsOf(const Args& args) { return args.any.experts.down.outputs; }
  DEVICE static uint32_t LogSplitsOf(const Args&) { return 0; }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_REDUCE_H_
