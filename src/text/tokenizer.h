// SPDX-License-Identifier: MIT
//
// Text to tokens and back: the byte-level BPE tokenizers of the Qwen family, as the `tokenizers`
// package runs them, read from tokenizer.json. The same text gives the same ids on every machine.
//
// A Tokenizer is immutable and shared; all its functions may be called from any thread at once.
// (One table remembers, for tokens seen, whether merging gives the token back; it is atomic, has a
// byte a token, and changes no result.)
#ifndef MAINARCH_TEXT_TOKENIZER_H_
#define MAINARCH_TEXT_TOKENIZER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/char_class.h"
#include "text/regex_split.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"
#include "text/vocabulary.h"

namespace mainarch::text {

struct EncodeOptions {
  // Whether "<|im_end|>" in the text becomes the special token or is plain text. Added tokens that
  // are not special ("<think>") are taken in both cases, as `split_special_tokens` of
  // `transformers` does.
  bool parse_special = true;
  // Whether added tokens are looked for at all: false is for text that must not be able to say
  // any of them.
  bool parse_added = true;
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

  // Appends the tokens of `utf8`; on an error `out` is as before. What is not UTF-8 is read as
  // U+FFFD, one for each maximal subpart. No token is put before or after.
  Status Encode(absl::string_view utf8, const EncodeOptions& options,
                std::vector<uint32_t>* out) const;

  // The text of `ids`: their bytes joined, and then what is not UTF-8 replaced as above. An id
  // without a token (the padding rows of a model's embedding) is no text, as in the package.
  std::string Decode(absl::Span<const uint32_t> ids, bool skip_special) const;

  // One past the largest id that has a token. There are no holes below it.
  uint32_t vocab_size() const { return static_cast<uint32_t>(flags_.size()); }

  // The bytes of a token, alone perhaps not UTF-8; empty for an id without one.
  absl::string_view TokenBytes(uint32_t id) const;
  bool IsAdded(uint32_t id) const { return id < flags_.size() && (flags_[id] & kAdded) != 0; }
  bool IsSpecial(uint32_t id) const { return id < flags_.size() && (flags_[id] & kSpecial) != 0; }
  // In rising order.
  std::vector<uint32_t> SpecialTokens() const;

  // The token that the file writes as `spelling`: an added token's content ("<|im_end|>"), or the
  // byte-level spelling of another.
  std::optional<uint32_t> TokenId(absl::string_view spelling) const;
  // The token of the model that is exactly these bytes.
  std::optional<uint32_t> TokenOfBytes(absl::string_view bytes) const;

  // As tokenizer_config.json names them.
  std::optional<uint32_t> bos_token() const { return bos_; }
  std::optional<uint32_t> eos_token() const { return eos_; }
  std::optional<uint32_t> pad_token() const { return pad_; }
  // Jinja source, for chat.h; empty when there is none.
  const std::string& chat_template() const { return chat_template_; }

 private:
  enum Flag : uint8_t { kAdded = 1, kSpecial = 2 };
  // Whether the bytes of a token are merged to that token again.
  enum Whole : uint8_t { kUnknown, kWhole, kParts };
  using NextPiece = size_t (*)(absl::string_view, const CharClasses&);

  Tokenizer() = default;

  Status Init(absl::string_view json);
  Status InitSplit(const std::string& pattern);
  Status InitAdded(std::vector<AddedToken> added);
  Status InitConfig(const TokenizerConfig& config);
  StatusOr<std::optional<uint32_t>> ConfigToken(absl::string_view key,
                                                const std::string& text) const;

  // Text between two added tokens of the raw text.
  Status EncodeRaw(absl::string_view raw, const EncodeOptions& options,
                   std::vector<uint32_t>* out) const;
  // Normalised text without added tokens.
  Status EncodePlain(absl::string_view text, std::vector<uint32_t>* out) const;
  void EncodePiece(absl::string_view piece, std::vector<uint32_t>* out) const;

  CharClasses classes_;
  ByteLevel byte_level_;
  Vocabulary vocabulary_;
  Merges merges_;
  bool nfc_ = false;
  bool ignore_merges_ = false;
  NextPiece next_piece_ = nullptr;           // a scanner, or
  std::unique_ptr<const RegexSplit> regex_;  // the engine for other patterns
  AddedTokenMatcher added_raw_;
  AddedTokenMatcher added_normalized_;
  std::vector<uint8_t> flags_;                              // by id
  HashMap<uint32_t, std::string> added_bytes_;  // of ids the vocabulary does not have
  HashMap<std::string, uint32_t> added_ids_;    // by content
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;           // Whole, by id of the vocabulary
  std::optional<uint32_t> bos_, eos_, pad_;
  std::string chat_template_;
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKENIZER_H_
