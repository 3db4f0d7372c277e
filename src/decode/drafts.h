// SPDX-License-Identifier: MIT
//
// Who guesses tokens ahead (speculative decoding). The engine runs a guess as further rows of the
// sequence's step and keeps as much of it as its own sampling, which is a function of the tokens
// before alone, would have produced: guesses change how many steps it takes, never a token.
#ifndef MAINARCH_DECODE_DRAFTS_H_
#define MAINARCH_DECODE_DRAFTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace mainarch::decode {

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // What may follow `tokens`, all that a sequence holds, in `out`; how many. `sequence` is below
  // max_sequences and the sequence's own while it is open. Called by the thread that prepares a
  // step; gets no memory.
  virtual size_t Propose(uint32_t sequence, absl::Span<const uint32_t> tokens,
                         absl::Span<uint32_t> out) = 0;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_DRAFTS_H_
