// SPDX-License-Identifier: MIT
//
// A tokenizer as lists of pieces, for files that are no tokenizer.json: GGUF, SentencePiece.
// Whoever reads such a file fills this in and calls Tokenizer::FromPieces, which checks everything:
// nothing here is trusted. Views need to live only until FromPieces returns.
#ifndef MAINARCH_TEXT_PIECES_H_
#define MAINARCH_TEXT_PIECES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/byte_level.h"

namespace mainarch::text {

// How text becomes pieces.
enum class PieceModel : uint8_t {
  kByteLevelBpe,      // GPT-2's: spelled byte-level, merges by rank       (GGUF "gpt2")
  kSentencePieceBpe,  // spelled with U+2581 for spaces, merges by score   (GGUF "llama")
  kUnigram,           // likewise, the best sum of scores                  (GGUF "t5")
  kSpacedBpe,         // likewise, but merges by rank                      (GGUF "gemma4")
  kWordPiece,         // BERT's                                            (GGUF "bert")
};

// The numbers are those of GGUF (tokenizer.ggml.token_type) and of SentencePiece's model.
enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,      // stands for what has no piece
  kControl = 3,      // special: BOS, EOS, turns
  kUserDefined = 4,  // looked for in the text before the model sees it
  kUnused = 5,
  kByte = 6,  // "<0x0A>"
};

struct TokenizerPieces {
  PieceModel model = PieceModel::kByteLevelBpe;
  // kByteLevelBpe: which split pattern, by the name that GGUF has for it (tokenizer.ggml.pre:
  // "llama-bpe", "qwen2", "gpt-2", "deepseek-v3" ..). An unknown name is refused by name.
  absl::string_view pre = "default";

  std::vector<absl::string_view> pieces;  // by id; valid UTF-8
  std::vector<float> scores;              // by id, or empty; only models with scores need them
  std::vector<PieceType> types;           // by id, or empty: all normal
  std::vector<absl::string_view> merges;  // "left right", best first; models with ranks need them

  std::optional<uint32_t> bos, eos, unk, pad;
  // What the tokenizer puts around a text on demand (EncodeOptions::add_special).
  bool add_bos = false;
  bool add_eos = false;
  // SentencePiece: a space before the text; and whether runs of spaces become one, and spaces at
  // both ends go.
  bool add_space_prefix = true;
  bool remove_extra_whitespaces = false;
  bool ignore_merges = false;  // a text that is a piece is that piece
  absl::string_view charsmap;  // SentencePiece's precompiled normaliser, or empty
};

struct TokenizerParts;

// The parts of a Tokenizer; called by Tokenizer::FromPieces. Errors name the piece.
Status ReadPieces(const TokenizerPieces& pieces, const ByteLevel& byte_level,
                  TokenizerParts* parts);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_PIECES_H_
