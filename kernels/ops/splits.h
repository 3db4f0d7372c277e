// SPDX-License-Identifier: MIT
//
// Partial sums of a product whose k several workgroups share: who takes it adds them.
#ifndef MAINARCH_KERNELS_OPS_SPLITS_H_
#define MAINARCH_KERNELS_OPS_SPLITS_H_

#include "kernels/common/tree.h"
#include "kernels/common/types.h"
#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// One element's, in the tree: the first at `at`, each `stride` elements behind the one before. All are
// asked for before the first is added.
template <class T>
DEVICE T SumSplits(Global<const T> at, uint32_t splits, uint64_t stride) {
  if (splits == 1) return *at;
  T parts[kMaxSplits];
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kMaxSplits; ++i) parts[i] = at[Min(i, splits - 1) * stride];
  AddTree(parts, splits, [](T a, T b) { return a + b; });
  return parts[0];
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_SPLITS_H_
