// SPDX-License-Identifier: MIT
//
// Text to tokens and back, as the `tokenizers` package does it: read from tokenizer.json, or made
// of the pieces of another file. The same text gives the same ids on every machine. In order: added
// tokens are cut out of the text, what is left is normalised, cut into pieces, and the model makes
// tokens of each piece.
//
// A Tokenizer is immutable and shared; all its functions may be called from any thread at once.
// (One table of the model remembers, for tokens seen, whether merging gives the token back; it is
// atomic, has a byte a token, and changes no result.)
#ifndef MAINARCH_TEXT_TOKENIZER_H_
#define MAINARCH_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "text/added_tokens.h"
#include "text/byte_level.h"
#include "text/char_class.h"
#include "text/pieces.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"

namespace mainarch::text {

struct EncodeOptions {
  // Whether "<|im_end|>" in the text becomes the special token or is plain text. Added tokens that
  // are not special ("<think>") are taken in both cases, as `split_special_tokens` of
  // `transformers` does.
  bool parse_special = true;
  // Whether added tokens are looked for at all: false is for text that must not be able to say
  // any of them.
  bool parse_added = true;
  // Whether the tokens that the tokenizer puts around a text (BOS, and perhaps others) are put
  // there: its post-processor, or add_bos_token and add_eos_token of tokenizer_config.json.
  bool add_special = false;
};

class Tokenizer {
 public:
  // The most bytes that one Encode takes.
  static constexpr size_t kMaxText = size_t{1} << 30;

  // `tokenizer_json` is the text of tokenizer.json, `tokenizer_config_json` that of
  // tokenizer_config.json or empty. `file_name` is that of the first, for messages. Neither text
  // needs padding, nor to live on.
  static StatusOr<std::shared_ptr<const Tokenizer>> Load(absl::string_view tokenizer_json,
                                                         absl::string_view tokenizer_config_json,
                                                         absl::string_view file_name);

  // The same from other files (pieces.h).
  static StatusOr<std::shared_ptr<const Tokenizer>> FromPieces(TokenizerPieces pieces,
                                                               absl::string_view file_name);

  // Appends the tokens of `utf8`; on an error `out` is as before. What is not UTF-8 is read as
  // U+FFFD, one for each maximal subpart. kUnsupported for a text that a pattern takes too long on
  // (no pattern in use does), or that has a character for which the model has no token at all.
  Status Encode(absl::string_view utf8, const EncodeOptions& options,
                std::vector<uint32_t>* out) const;

  // The text of `ids`, always UTF-8 (text_decoder.h). An id without a token (the padding rows of a
  // model's embedding) is no text, as in the package.
  std::string Decode(absl::Span<const uint32_t> ids, bool skip_special) const;

  // Decode piece by piece, for StreamDecoder: appends what is sure with `id`, and the rest.
  void PushText(uint32_t id, TextDecoder::State* state, std::string* out) const;
  void FinishText(TextDecoder::State* state, std::string* out) const;
  // Whether a text is the bytes of its tokens joined, whichever they are.
  bool joins_bytes() const { return decoder_.only_byte_level(); }

  // One past the largest id that has a token.
  uint32_t vocab_size() const { return static_cast<uint32_t>(flags_.size()); }

  // What a token stands for amid a text, alone perhaps not UTF-8; empty for an id without one.
  absl::string_view TokenBytes(uint32_t id) const;
  bool IsAdded(uint32_t id) const { return id < flags_.size() && (flags_[id] & kAdded) != 0; }
  bool IsSpecial(uint32_t id) const { return id < flags_.size() && (flags_[id] & kSpecial) != 0; }
  // In rising order.
  std::vector<uint32_t> SpecialTokens() const;

  // The token that the file writes as `spelling`: an added token's content ("<|im_end|>"), or how
  // the vocabulary spells another.
  std::optional<uint32_t> TokenId(absl::string_view spelling) const;
  // The token of the model that stands for exactly these bytes.
  std::optional<uint32_t> TokenOfBytes(absl::string_view bytes) const;

  // As tokenizer_config.json names them.
  std::optional<uint32_t> bos_token() const { return bos_; }
  std::optional<uint32_t> eos_token() const { return eos_; }
  std::optional<uint32_t> pad_token() const { return pad_; }

 private:
  enum Flag : uint8_t { kAdded = 1, kSpecial = 2 };

  Tokenizer() = default;

  Status Init(TokenizerParts parts);
  Status InitAdded(std::vector<AddedToken> added);
  Status CheckIds(uint32_t size, size_t added) const;
  Status CheckAround(const std::vector<uint32_t>& tokens) const;
  void InitTexts();
  Status InitConfig(const TokenizerConfig& config);
  StatusOr<std::optional<uint32_t>> ConfigToken(absl::string_view key,
                                                const std::string& text) const;

  // Null for a vocabulary that is spelled as it is.
  const ByteLevel* spelling() const { return model_.byte_level() ? &byte_level_ : nullptr; }
  // How the file writes a token.
  std::string SpellingOf(uint32_t id) const;

  // Text between two added tokens of the raw text; `first`: before all of them.
  Status EncodeRaw(absl::string_view raw, bool first, const EncodeOptions& options,
                   std::vector<uint32_t>* out) const;
  // Normalised text without added tokens.
  Status EncodePlain(absl::string_view text, bool first, std::vector<uint32_t>* out) const;

  const CharClasses& classes_ = CharClasses::Shared();
  ByteLevel byte_level_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  bool mapped_ = false;  // TokenizerParts::mapped
  TokenModel model_;
  TextDecoder decoder_;
  AddedTokenMatcher added_raw_;
  AddedTokenMatcher added_normalized_;
  std::vector<uint8_t> flags_;                      // by id
  HashMap<uint32_t, std::string> added_spellings_;  // by id, normalised
  HashMap<uint32_t, std::string> added_bytes_;      // where they are not the vocabulary's
  HashMap<std::string, uint32_t> added_ids_;        // by content
  std::vector<std::string> texts_;  // TokenBytes, where they are not the vocabulary's
  std::vector<uint32_t> before_, after_;
  std::optional<uint32_t> bos_, eos_, pad_;
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKENIZER_H_
