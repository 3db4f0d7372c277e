// SPDX-License-Identifier: MIT
//
// Splits of long contexts, and how ranks share them: what the kernels attend_long_*, attend_long_merge (which takes
// AttendMergeArgs), share_queries and attend_shared_merge, and the host agree on.
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

inline constexpr uint32_t kLongMergeColumns = 16;  // of a head, that a workgroup of attend_long_merge has,
inline constexpr uint32_t kWideMergeColumns = 64;  // and one of attend_long_merge_wide
// Where attention's launch merges (AttendHere) a workgroup has kLongMergeColumns, too; of so few splits these columns.
inline constexpr uint32_t kHereWideSplits = 64;
constexpr uint32_t HereWideColumns(uint32_t head_dim) { return head_dim % 64 == 0 ? 64 : 32; }
inline constexpr uint32_t kMergeChains = 16;       // in which a row's splits are added: split s in chain s % kMergeChains

// ---- ranks that hold the same KV head ----

// With more ranks than KV heads several ranks hold one. Of a long row each of them attends every ranks-th split, with
// the queries of all, and makes those chains of the merge that are of its splits: so K and V are read once.
//   share_queries        every rank's queries go to all others
//   attend_long_*        each attends to its splits
//   attend_shared_merge  chains of others' queries go to their rank, which adds all chains in order
// What goes is pushed, each number beside its epoch in one word of 64 bits, as in the all-reduce of one round
// (ops/reduce.h), into the two halves of the receiver's memory in turn: who begins epoch e + 2 has had chains of epoch
// e + 1 from all, who made them when they had read all of epoch e.
inline constexpr uint32_t kShareRows = 16;  // of a step that shares, at most
struct AttendShare {
  Address<uint8_t> exchange[kMaxRanks];  // of the ranks that hold the head, in their order: two halves each, zeroed once
  Address<float> queries;                // [rows, ranks * heads, head_dim], this rank's
  uint64_t half = 0;                     // bytes: ShareBytes
  uint64_t chains_at = 0;
  uint32_t log_ranks = 0;  // 0: nothing is shared; at most kMergeChains ranks, all their heads at most kMaxGroup
  uint32_t rank = 0;       // among them
  uint32_t from = 0;       // rows at this position and beyond are shared; at least kSplitTokens
  uint32_t sequence = 0;   // of this attention within a step, from 0
  uint32_t per_step = 0;   // such attentions a step
  uint32_t reserved = 0;
};
static_assert(sizeof(AttendShare) == 112);
constexpr bool IsShared(const AttendShare& share, uint32_t position) {
  return share.log_ranks != 0 && position >= share.from;
}

// A half: queries [ranks][kShareRows][heads * head_dim], the sender first; chains [kShareRows][heads][head_dim /
// kLongMergeColumns][kMergeChains][kChainWords]: elements, the largest score, the sum. All are words of 64 bits.
inline constexpr uint32_t kChainWords = kLongMergeColumns + 2;
struct ShareBytes {
  uint64_t chains_at = 0, half = 0;
};
constexpr ShareBytes ShareBytesOf(uint64_t ranks, uint64_t heads, uint64_t head_dim) {
  ShareBytes out;
  out.chains_at = ranks * kShareRows * heads * head_dim * 8;
  out.half = out.chains_at + kShareRows * heads * head_dim / kLongMergeColumns * kMergeChains * kChainWords * 8;
  return out;
}

struct ShareQueriesArgs {
  Address<const uint32_t> step;
  Address<const float> qkv;  // [rows, stride]: this rank's heads of q
  AttendShare share;
  uint32_t stride = 0;
  uint32_t columns = 0;  // heads * head_dim
};
static_assert(sizeof(ShareQueriesArgs) == 136);

// What is not shared is as without: `heads` and `qkv` are this rank's. parts: of a row that is shared [ranks * heads,
// max_splits / ranks, AttendPartFloats], the splits that are this rank's; max_splits is a multiple of ranks.
struct AttendLongArgs {
  AttendArgs attend;
  AttendShare share;
  AttendHere here;  // where nothing is shared
};
static_assert(sizeof(AttendLongArgs) == 256);
struct AttendSharedMergeArgs {
  AttendMergeArgs merge;
  AttendShare share;
};
static_assert(sizeof(AttendSharedMergeArgs) == 192);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_LONG_ARGS_H_
