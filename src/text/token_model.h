// SPDX-License-Identifier: MIT
//
// One piece of text to tokens: BPE over bytes or over characters, Unigram, or WordPiece, with what
// a model does about characters that have no token. Immutable once made, but for a memory of tokens
// that are merged to themselves again; may be shared by threads.
#ifndef MAINARCH_TEXT_TOKEN_MODEL_H_
#define MAINARCH_TEXT_TOKEN_MODEL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/bpe.h"
#include "text/prefix_trie.h"
#include "text/unigram.h"
#include "text/vocabulary.h"

namespace mainarch::text {

enum class ModelKind : uint8_t { kBpe, kUnigram, kWordPiece };

struct TokenModelParts {
  ModelKind kind = ModelKind::kBpe;
  // The vocabulary holds bytes (byte-level spelling), and pieces may be any bytes; else both are
  // UTF-8.
  bool byte_level = true;
  Vocabulary vocabulary;        // the tokens of the model, without those only added
  Merges merges;                // BPE
  std::vector<double> scores;   // Unigram, by id
  uint32_t unk = kNoToken;      // of what has no token
  bool fuse_unk = false;        // BPE: neighbours that have none are one
  bool byte_fallback = false;   // what has none is written in the tokens "<0x00>" to "<0xFF>"
  bool ignore_merges = false;   // BPE: a piece that is a token is that token
  std::string prefix = "##";    // WordPiece: of tokens inside a word
  size_t max_characters = 100;  // WordPiece: a longer word is unknown
};

class TokenModel {
 public:
  TokenModel() = default;

  void Build(TokenModelParts parts);

  // Appends the tokens of `piece`.
  Status Encode(absl::string_view piece, std::vector<uint32_t>* out) const;

  const Vocabulary& vocabulary() const { return parts_.vocabulary; }
  bool byte_level() const { return parts_.byte_level; }
  bool byte_fallback() const { return parts_.byte_fallback; }

 private:
  // Whether the bytes of a token are merged to that token again.
  enum Whole : uint8_t { kUnknown, kWhole, kParts };

  void EncodeWord(absl::string_view word, std::vector<uint32_t>* out) const;
  // The tokens that the characters of `word` are before any merge.
  void Symbols(absl::string_view word, std::vector<uint32_t>* out) const;
  bool AppendBytes(absl::string_view character, std::vector<uint32_t>* out) const;
  void EncodeWordPiece(absl::string_view word, std::vector<uint32_t>* out) const;

  TokenModelParts parts_;
  bool all_bytes_ = false;  // every byte is a token: Merges::Encode will do
  // Nothing is merged across the front of a U+2581 that follows something else: such text is
  // encoded word by word, which gives the same tokens in less time.
  bool cut_at_marks_ = false;
  std::array<uint32_t, 256> byte_tokens_{};
  Unigram unigram_;
  PrefixTrie beginnings_, middles_;                // WordPiece
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;  // Whole, by id of the vocabulary
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKEN_MODEL_H_
