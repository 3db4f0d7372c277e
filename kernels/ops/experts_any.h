// SPDX-License-Identifier: MIT
//
// The routed experts of a layer (ops/experts.h) with what not all models have.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_ANY_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_ANY_H_

#include "kernels/ops/experts.h"

namespace mainarch::kernels {

// Experts with biases of gate and up, or another activation.
template <TileFormat kFormat, Taken kTaken = Taken::kBoth, TileFormat kDown = kFormat>
struct ExpertsAny {
  using Args = ExpertsAnyArgs;
  using Products = Experts<kFormat, kTaken, /*kAny=*/true, kDown>;
  static constexpr uint32_t kLeastWaves = Products::kLeastWaves;
  static constexpr uint32_t kLdsBytes = Products::kLdsBytes;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Products::Run(args.experts, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_ANY_H_
