// SPDX-License-Identifier: MIT
//
// A product whose sums go to x, and the all-reduce behind it, in one launch of few rows (ops/last_reduce.h).
#ifndef MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_
#define MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_

#include "kernels/ops/last_reduce.h"
#include "kernels/ops/matmul.h"

namespace mainarch::kernels {

template <TileFormat kFormat, bool kRounded = false>
struct MatmulReduce {
  using Args = MatmulReduceArgs;
  using Product = Matmul<kFormat, /*kGateUp=*/false, kRounded>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
    LastReduce<MatmulReduce>::Run(worker, workers, arena);
  }

  // For LastReduce.
  DEVICE static uint32_t OutputsOf(const Args& args) { return args.product.w.outputs; }
  DEVICE static uint32_t LogSplitsOf(const Args& args) {
    return static_cast<uint32_t>(__builtin_ctz(args.product.splits));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_
