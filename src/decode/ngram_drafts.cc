// SPDX-License-Identifier: MIT
#include "decode/ngram_drafts.h"

#include <algorithm>

namespace mainarch::decode {
namespace {

// How many of the last tokens stand before `end`, too; at most kLongest.
size_t Alike(absl::Span<const uint32_t> tokens, size_t end) {
  const size_t most = std::min(end, NgramDrafts::kLongest);
  size_t n = 0;
  while (n < most && tokens[end - 1 - n] == tokens[tokens.size() - 1 - n]) ++n;
  return n;
}

}  // namespace

size_t NgramDrafts::Propose(uint32_t, absl::Span<const uint32_t> tokens,
                            absl::Span<uint32_t> out) {
  if (tokens.size() > kLookBack) tokens.remove_prefix(tokens.size() - kLookBack);
  size_t best = 0, longest = 0;
  for (size_t end = tokens.size(); end-- > 1 && longest < kLongest;) {
    const size_t alike = Alike(tokens, end);
    if (alike <= longest) continue;
    longest = alike;
    best = end;
  }
  if (longest == 0) return 0;
  // Beyond the end of what is held the repetition goes on with what has just been guessed.
  const size_t period = tokens.size() - best;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = i < period ? tokens[best + i] : out[i - period];
  }
  return out.size();
}

}  // namespace mainarch::decode
