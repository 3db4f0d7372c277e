// SPDX-License-Identifier: MIT
//
// What the choice of a token takes and leaves, read by host and device. What decoder_args.h says of
// steps and rows holds here.
#ifndef MAINARCH_KERNELS_CHOICE_ARGS_H_
#define MAINARCH_KERNELS_CHOICE_ARGS_H_

#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// Of one logit row: what becomes of its logits.
enum ChoiceFlags : uint32_t {
  kChoiceRead = 1,    // to host memory
  kChoiceToken = 2,   // a token is chosen
  kChoiceSample = 4,  // drawn, not the largest
  kChoiceMask = 8,    // a mask of allowed tokens lies behind the counts
};
struct ChoiceRow {
  uint32_t flags = 0;
  float temperature = 0;  // of a draw; then the filters, 0: none
  float min_p = 0;
  float top_p = 0;  // below 1
  uint32_t top_k = 0;
  float repetition = 1;  // penalties of the counted tokens
  float frequency = 0;
  float presence = 0;
  uint64_t seed = 0;
  uint64_t position = 0;
  uint32_t edits_at = 0;  // words from the start of the block: [edits] ChoiceEdit, in order
  uint32_t edits = 0;
  uint32_t counts_at = 0;  // [counts] ChoiceCount, after the edits; then [ceil(vocab / 32)] mask words
  uint32_t counts = 0;
};
static_assert(sizeof(ChoiceRow) == 64);

struct ChoiceEdit {
  uint32_t token = 0;
  float value = 0;
  uint32_t sets = 0;  // the logit becomes the value; else the value is added
};
static_assert(sizeof(ChoiceEdit) == 12);

struct ChoiceCount {
  uint32_t token = 0;     // once in a list
  uint32_t produced = 0;  // times
};
static_assert(sizeof(ChoiceCount) == 8);

struct ChoiceResult {
  uint32_t token = 0;
  uint32_t chosen = 0;  // 0: no token could be chosen (nan, infinity, all banned)
};
static_assert(sizeof(ChoiceResult) == 8);

inline constexpr uint32_t kChoiceChunk = 2048;  // logits of one workgroup
// Whether choose_share chooses for a row by itself, with nothing left to the launches behind it: the largest
// logit, or a draw among few.
inline constexpr uint32_t kMostAtOnce = 50;
constexpr bool ChoosesAtOnce(uint32_t flags, uint32_t top_k) {
  return !(flags & kChoiceSample) || (top_k > 0 && top_k <= kMostAtOnce);
}

// What a chunk tells a row's owner, each word beside a tag of its step, so that it needs no flag: order and id of
// its peak, the number of its candidates and a word of nothing; then order and id of each. More than kChunkFound
// are counted, and not told. Orders are those of ops/choose_share.h OrderOfLogit.
inline constexpr uint32_t kFoundHead = 4;
inline constexpr uint32_t kChunkFound = 64;
inline constexpr uint32_t kFoundWords = kFoundHead + 2 * kChunkFound;
constexpr uint32_t FoundTag(uint32_t index) { return 2 * index + 1; }  // of neighbouring steps never one, never 0
constexpr uint64_t TaggedFound(uint32_t index, uint32_t value) {
  return uint64_t{FoundTag(index)} << 32 | value;
}

// Who runs in a race, as narrowing finds it.
struct RaceField {
  uint32_t draws = 0;                   // 0: no token can be chosen
  float peak = 0;                       // the largest logit
  float least = -0x1.fffffep+127f;      // logits below it are out (top_k)
  uint32_t order = 0;                   // scores below it are out (top_p): kernels/common/draw.h OrderOfScore
  uint32_t last_id = 0xffffffff;        // of the scores that equal it, higher ids are out
  uint32_t reserved[3] = {};
};
static_assert(sizeof(RaceField) == 32);

// Teams of workgroups that narrow rows side by side, what each has of memory (ops/sample.h Team), and what a chunk
// tells of its best racer: a double's two halves and an id, each beside its tag.
inline constexpr uint32_t kRaceTeams = 4;
inline constexpr uint32_t kRaceTeamLine = 16;  // words of 64 bits: a counter, in a line of its own
inline constexpr uint32_t kRaceTeamWords = 3 * 2048 + kRaceTeamLine;
inline constexpr uint32_t kRacerWords = 4;

// What a launch of choose_share does: its chunks tell, workgroups wait for them and choose, or both. As many workgroups
// wait as rows are owned; where these are more than the compute units, they have a launch behind the one that tells,
// because who waits must leave room for those that are waited for.
enum ChoosePart : uint32_t { kChooseBoth = 0, kChooseTell = 1, kChooseWait = 2 };

// One argument struct for the three kernels of a choice. Row i of the step's logit rows belongs to
// rank i % ranks, in slot i / ranks. choose_share, on every rank: its share of the logits is edited, and what
// is found in every chunk goes to the owner, who chooses where that is enough (ChoosesAtOnce); if a token is
// drawn the logits go there too, push and flag as in Reduce. choose_narrow and choose_race: the owner's work on
// other rows. Who chooses tells the host and, for the rows of the step behind, every GPU.
struct ChooseArgs {
  Address<const uint32_t> step;
  Address<const float> logits;            // [2][max_rows, share_stride], this rank's share
  Address<float> host_logits;             // [2][max_rows, vocab_stride]
  Address<ChoiceResult> results;          // [kResultSlots][max_rows], in host memory, zeroes before the step
  Address<uint64_t> teams;                // [kRaceTeams, kRaceTeamWords], zeroed once
  Address<RaceField> fields;              // [slots]
  Address<uint64_t> races;                // [slots, ceil(vocab / kChoiceChunk), kRacerWords], zeroed once
  Address<float> values[kMaxRanks];       // in the owner's memory: [slots, vocab_stride]
  Address<uint64_t> found[kMaxRanks];     // [slots, ranks, chunks, kFoundWords], zeroed once
  Address<uint32_t> flags[kMaxRanks];     // [2][slots, ranks, chunks], zeroed once
  Address<uint64_t> tokens[kMaxRanks];    // [2][max_rows] TaggedToken, in each rank's memory
  uint32_t vocab = 0;
  uint32_t vocab_stride = 0;  // a multiple of 4
  uint32_t share = 0;         // columns of this rank
  uint32_t share_first = 0;   // the first of them
  uint32_t share_stride = 0;
  uint32_t chunks = 0;  // of the largest share
  uint32_t slots = 0;
  uint32_t ranks = 0;
  uint32_t rank = 0;
  uint32_t mass_shift = 0;  // MassShift(vocab)
  uint32_t max_rows = 0;    // logit rows of a step
  ChoosePart part = kChooseBoth;  // of choose_share
};
static_assert(sizeof(ChooseArgs) == 360);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_CHOICE_ARGS_H_
