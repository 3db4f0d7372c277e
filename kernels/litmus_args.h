// SPDX-License-Identifier: MIT
//
// Arguments of the litmus kernels (ops/litmus.h), read by host and device: what the decoder rests on and no
// document says.
#ifndef MAINARCH_KERNELS_LITMUS_ARGS_H_
#define MAINARCH_KERNELS_LITMUS_ARGS_H_

#include "kernels/args.h"

namespace mainarch::kernels {

inline constexpr uint32_t kLitmusWords = 1024;  // of a payload
inline constexpr uint32_t kLitmusLine = 32;     // words from flag to flag

// What one side of a pair of workgroups has seen.
struct LitmusSeen {
  uint32_t xcd = 0;
  uint32_t rounds = 0;      // that it came through
  uint32_t wrong = 0;       // words that were not those of their round
  uint32_t most_polls = 0;  // of one round
};
static_assert(sizeof(LitmusSeen) == 16);

enum LitmusMode : uint32_t {
  kLitmusFences = 1,       // release before a flag is stored, acquire after it was seen
  kLitmusSystem = 2,       // scopes are the system's, not the device's
  kLitmusPlainPolls = 4,   // a flag is looked at by loads that caches may answer
};
// Workgroups 2 apart * k + i and apart behind it, i < apart, are a pair: the first hands over a payload each
// round, the second looks at it and says so. Who has polled `limit` times gives up.
struct HandOverArgs {
  Address<uint32_t> payload;  // [pairs][kLitmusWords], zeros
  Address<uint32_t> flags;    // [pairs][2][kLitmusLine], zeros: there is a payload; it was read
  Address<LitmusSeen> seen;   // [workgroups]
  uint32_t rounds = 0;
  uint32_t apart = 1;
  uint32_t mode = 0;
  uint32_t limit = 0;
};
static_assert(sizeof(HandOverArgs) == 40);

// Pairs of threads of two workgroups hand over words of 64 bits, a number beside the round, with no fence. Both
// workgroups are of one launch (`role` 2: worker 0 sends), or `role` says what this launch's one does: 0 sends.
struct WordsArgs {
  Address<uint64_t> words;    // [kThreads], zeros, in the receiver's memory
  Address<uint32_t> answers;  // [kThreads], zeros, in the sender's memory
  Address<LitmusSeen> seen;   // [2]: sender, receiver
  uint32_t rounds = 0;
  uint32_t role = 0;
  uint32_t limit = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(WordsArgs) == 40);

// Every workgroup writes its part of `words` (`check` 0), or counts words of the next one's part that are not
// `value` + place.
struct LitmusFillArgs {
  Address<uint32_t> words;  // [workgroups][kLitmusWords]
  Address<uint32_t> wrong;  // [workgroups]
  uint32_t value = 0;
  uint32_t check = 0;
};
static_assert(sizeof(LitmusFillArgs) == 24);

// Each workgroup counts itself (`waits` 0), or polls until `goal` of another launch have, at most `limit` times.
struct LitmusBesideArgs {
  Address<uint32_t> counter;  // zero
  Address<uint32_t> polls;    // [workgroups]: kLitmusInVain: who gave up
  uint32_t waits = 0;
  uint32_t goal = 0;
  uint32_t limit = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(LitmusBesideArgs) == 32);
inline constexpr uint32_t kLitmusInVain = ~0u;

// out[0] = value: what a kernel finds its argument to be.
struct EchoArgs {
  Address<uint32_t> out;
  uint32_t value = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(EchoArgs) == 16);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_LITMUS_ARGS_H_
