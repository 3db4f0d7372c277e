// SPDX-License-Identifier: MIT
//
// Partial sums of a product whose k several workgroups share: who takes it adds them.
#ifndef MAINARCH_KERNELS_OPS_SPLITS_H_
#define MAINARCH_KERNELS_OPS_SPLITS_H_

#include "kernels/common/sync.h"
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

// The same of kCount neighbours, which come as words with `tag` (LaunchTag), as soon as all are there. There are kMost
// splits at most.
template <uint32_t kCount, uint32_t kMost = kMaxSplits>
DEVICE Vec<float, kCount> AwaitSplits(Global<const uint64_t> at, uint32_t splits, uint64_t stride, uint32_t tag) {
  Vec<float, kCount> parts[kMost];
  while (true) {
    uint64_t words[kMost][kCount];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kMost; ++i) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        words[i][j] = LoadFlag<Scope::kDevice>(at + (Min(i, splits - 1) * stride + j));
      }
    }
    uint32_t other = 0;  // bits in which tags differ: masks of comparisons would take scalar registers
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kMost; ++i) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        const uint64_t word = words[i][j];
        other |= static_cast<uint32_t>(word >> 32) ^ tag;
        parts[i][j] = BitCast<float>(static_cast<uint32_t>(word));
      }
    }
    if (other == 0) break;
    Pause();
  }
  using Part = Vec<float, kCount>;
  AddTree(parts, splits, [](Part a, Part b) { return a + b; });
  return parts[0];
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_SPLITS_H_
