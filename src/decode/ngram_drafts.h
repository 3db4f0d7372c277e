// SPDX-License-Identifier: MIT
//
// Drafts without a model: a text that repeats itself goes on as it did before. Looks for the latest
// place where the last three tokens stand already (or the last two, or the last one) and guesses what
// followed there.
#ifndef MAINARCH_DECODE_NGRAM_DRAFTS_H_
#define MAINARCH_DECODE_NGRAM_DRAFTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "decode/drafts.h"

namespace mainarch::decode {

class NgramDrafts final : public DraftSource {
 public:
  static constexpr size_t kLongest = 3;          // tokens that are looked for
  static constexpr size_t kLookBack = 16 * 1024;  // tokens: bounds the time of one guess

  size_t Propose(uint32_t sequence, absl::Span<const uint32_t> tokens,
                 absl::Span<uint32_t> out) override;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_NGRAM_DRAFTS_H_
