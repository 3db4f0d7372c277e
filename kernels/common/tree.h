// SPDX-License-Identifier: MIT
//
// Who is added to whom where a sum is shared by parts or by ranks: neighbours first,
// ((0+1)+(2+3))+((4+5)+(6+7)). The one definition, for the CPU's kernels and phases, for the GPUs'
// products and all-reduces and for host ranks. A rank that holds a power of two of neighbouring
// parts holds a whole subtree, and adding the ranks is the rest of the tree: so 1, 2, 4 and 8 ranks
// give the same bits. (A chain would give others for every number of ranks, and rounds more.)
//
// Compiled by both compilers, for hosts once a CPU target: so all of it is inlined, and nothing is
// left that could be linked into code for a lesser CPU (src/backend/cpu/simd/simd.h).
#ifndef MAINARCH_KERNELS_COMMON_TREE_H_
#define MAINARCH_KERNELS_COMMON_TREE_H_

#include <stdint.h>

namespace mainarch::kernels {

// v[0] becomes the sum of v[0 .. n), n <= kMost; the others are used up. Of a number that is no
// power of two, an element without a neighbour goes up as it is.
template <class T, uint32_t kMost, class Add>
[[gnu::always_inline]] static inline constexpr void AddTree(T (&v)[kMost], uint32_t n, Add add) {
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 8
#endif
  for (uint32_t level = 1; level < kMost; level *= 2) {
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 8
#endif
    for (uint32_t i = 0; i + level < kMost; i += 2 * level) {
      if (i + level < n) v[i] = add(v[i], v[i + level]);
    }
  }
}

// The same tree when elements come one by one, as carries in a binary counter: element `index` ends
// so many sums, each of which joins its left neighbour, the smallest first.
[[gnu::always_inline]] static inline constexpr uint32_t TreeCarries(uint32_t index) {
  return static_cast<uint32_t>(__builtin_ctz(~index));
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_TREE_H_
