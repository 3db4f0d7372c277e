// SPDX-License-Identifier: MIT
//
// SentencePiece's Unigram model: the pieces whose scores have the best sum (Viterbi), as the
// `tokenizers` package finds them, in double precision and with its ties. Immutable once built.
#ifndef MAINARCH_TEXT_UNIGRAM_H_
#define MAINARCH_TEXT_UNIGRAM_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/prefix_trie.h"
#include "text/vocabulary.h"

namespace mainarch::text {

class Unigram {
 public:
  Unigram() = default;

  // `scores` by id; every token of `vocabulary` has one. `unk` is the token of characters that have
  // none, or kNoToken. With `byte_fallback` a run of them is written in the tokens "<0x00>" to
  // "<0xFF>" where the vocabulary has those of all its bytes.
  void Build(const Vocabulary& vocabulary, std::vector<double> scores, uint32_t unk,
             bool byte_fallback);

  // Appends the tokens of `piece`, valid UTF-8. Fails where a character has no token, and there is
  // no token for such. Time is its length times that of the longest token.
  Status Encode(absl::string_view piece, std::vector<uint32_t>* out) const;

 private:
  void AppendUnknown(absl::string_view text, std::vector<uint32_t>* out) const;

  PrefixTrie trie_;
  std::vector<double> scores_;
  double unk_score_ = 0;
  uint32_t unk_ = kNoToken;
  bool byte_fallback_ = false;
  std::array<uint32_t, 256> byte_tokens_{};
};

// The token that stands for a byte, "<0x0A>", or kNoToken.
uint32_t FindByteToken(const Vocabulary& vocabulary, unsigned char byte);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_UNIGRAM_H_
