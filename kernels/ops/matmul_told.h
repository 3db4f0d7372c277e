// SPDX-License-Identifier: MIT
//
// A product of one row whose sums go as words with a tag, to a launch beside it that waits for them (decoder_args.h,
// ToldWords).
#ifndef MAINARCH_KERNELS_OPS_MATMUL_TOLD_H_
#define MAINARCH_KERNELS_OPS_MATMUL_TOLD_H_

#include "kernels/ops/matmul.h"

namespace mainarch::kernels {

struct ToldSums {
  DEVICE static void Put(const MatmulArgs&, uint32_t split, uint32_t, uint32_t column, float value) {
    const MatmulToldArgs args = ReadArgumentsAgain<MatmulToldArgs>();
    const uint32_t tag = LaunchTag(StepView(args.product.step).index(), args.told.turn, args.told.turns);
    StoreFlag<Scope::kDevice>(At(args.told.words) + (split * args.product.out_stride + column),
                              uint64_t{tag} << 32 | BitCast<uint32_t>(value));
  }
};

template <TileFormat kFormat, bool kRounded = false>
struct MatmulTold {
  using Args = MatmulToldArgs;
  using Product = Matmul<kFormat, /*kGateUp=*/false, kRounded, /*kAny=*/false, ToldSums>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MATMUL_TOLD_H_
