// SPDX-License-Identifier: MIT
//
// Attention with two caches: a row takes the first `kept` tokens and the last `window`, its own among them, from a cache
// of their own, in fp8, and those between, the far ones, from a cache of fewer bits. What the kernels prepare_near_*,
// attend_far_* (which takes AttendLongArgs), attend_near_* (AttendArgs) and attend_near_merge, and the host agree on.
#ifndef MAINARCH_KERNELS_NEAR_ARGS_H_
#define MAINARCH_KERNELS_NEAR_ARGS_H_

#include "kernels/long_args.h"

namespace mainarch::kernels {

struct NearTokens {
  uint32_t window = 0;
  uint32_t kept = 0;  // whole pages
};

// A row's parts: of far splits, of splits of the window, of the kept tokens, in this order. Far tokens are split as
// those of long contexts are, up to the last of them, which leaves room for the others' parts.
inline constexpr uint32_t kFarSplits = kLongSplits - 4;
constexpr bool HasFar(uint32_t position, NearTokens near) { return position >= near.window + near.kept; }
// Of a row that has far tokens.
constexpr uint32_t LastFar(uint32_t position, NearTokens near) { return position - near.window; }
constexpr uint32_t FarSplitBlocks(uint32_t last) { return last / (kSplitTokens * kFarSplits) + 1; }
constexpr uint32_t FarSplits(uint32_t position, NearTokens near) {
  if (!HasFar(position, near)) return 0;
  const uint32_t last = LastFar(position, near);
  return last / (FarSplitBlocks(last) * kSplitTokens) + 1;
}
// Kept tokens that are not within the window.
constexpr uint32_t KeptSeen(uint32_t position, NearTokens near) {
  const uint32_t before = FirstSeen(position, near.window);
  return before < near.kept ? before : near.kept;
}
constexpr uint32_t NearParts(uint32_t position, NearTokens near) {
  return FarSplits(position, near) + SplitsSeen(position, near.window) + (KeptSeen(position, near) > 0 ? 1 : 0);
}
// Of any row, where the longest context has so many blocks of kSplitTokens.
constexpr uint32_t MostNearParts(uint32_t splits, NearTokens near) {
  return (splits < kFarSplits ? splits : kFarSplits) + MostSplits(near.window) + 1;
}

struct AttendNearMergeArgs {
  AttendMergeArgs merge;  // with the near cache's window
  uint32_t kept = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(AttendNearMergeArgs) == 88);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_NEAR_ARGS_H_
