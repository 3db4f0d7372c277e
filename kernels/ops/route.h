// SPDX-License-Identifier: MIT
//
// A plain router's choice: the largest of its logits, and their softmax.
#ifndef MAINARCH_KERNELS_OPS_ROUTE_H_
#define MAINARCH_KERNELS_OPS_ROUTE_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/choose.h"

namespace mainarch::kernels {

struct Route {
  using Args = RouteArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t rows = StepView(args.step).rows();
    for (uint32_t row = worker * kWaves + WaveId(); row < rows; row += workers * kWaves) {
      const Args again = ReadArgumentsAgain<Args>();
      OneRow(again, row, Router::Into(again.router, row, again.router.top + again.shared));
    }
  }

  template <class Put>
  DEVICE static void OneRow(const Args& args, uint32_t row, Put put) {
    const RowFactor factor(args.norm, row, true);
    const ToldSums told(args.told, StepView(args.step).index(), args.stride);
    Router::OneRow(args.router, row, args.stride, args.shared, args.splits,
                   uint64_t{args.split_rows} * args.stride,
                   [&] { return factor.Value(args.norm); }, put,
                   args.told.words.address == 0 ? nullptr : &told);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ROUTE_H_
