// SPDX-License-Identifier: MIT
//
// Which tokens may be sampled next, a bit a token, as grammar engines make them: bit t % 32 of word
// t / 32 is set when token t is allowed. One mask is for one token: whoever sampled it clears it.
#ifndef MAINARCH_DECODE_TOKEN_MASK_H_
#define MAINARCH_DECODE_TOKEN_MASK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::decode {

constexpr uint32_t MaskWords(uint32_t vocab) { return vocab / 32 + (vocab % 32 != 0); }

inline bool Allows(absl::Span<const uint32_t> words, uint32_t token) {
  return (words[token / 32] >> (token % 32) & 1) != 0;
}

class TokenMask {
 public:
  // Fewer words than the vocabulary has are made up with zeros (a tokenizer may know fewer tokens
  // than the model has logits); more are InvalidArgument. Bits beyond the vocabulary say nothing.
  Status Set(absl::Span<const uint32_t> words, uint32_t vocab);
  void Clear() { set_ = false; }
  // [MaskWords(vocab)]; empty: every token is allowed.
  absl::Span<const uint32_t> words() const {
    return set_ ? absl::Span<const uint32_t>(words_) : absl::Span<const uint32_t>();
  }

 private:
  std::vector<uint32_t> words_;
  bool set_ = false;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_TOKEN_MASK_H_
