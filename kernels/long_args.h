// SPDX-License-Identifier: MIT
//
// Splits of long contexts: what the kernels attend_long_* and attend_long_merge, which take AttendArgs and
// AttendMergeArgs, and the host agree on.
#ifndef MAINARCH_KERNELS_LONG_ARGS_H_
#define MAINARCH_KERNELS_LONG_ARGS_H_

#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// Of contexts that have more splits than a chip has places for workgroups, a split is several neighbouring
// blocks of kSplitTokens, as many as leave a row no more than kLongSplits: what a split leaves of 16 heads is as
// many bytes as half a block's K and V in four bits. Up to there nothing differs, to the bit.
inline constexpr uint32_t kLongSplits = 512;
constexpr uint32_t LongSplitBlocks(uint32_t position) {
  return position / (kSplitTokens * kLongSplits) + 1;
}
constexpr uint32_t LongSplits(uint32_t position) {
  return position / (LongSplitBlocks(position) * kSplitTokens) + 1;
}

inline constexpr uint32_t kLongMergeColumns = 16;  // of a head, that a workgroup of attend_long_merge has

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_LONG_ARGS_H_
