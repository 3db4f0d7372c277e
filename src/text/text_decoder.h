// SPDX-License-Identifier: MIT
//
// Tokens to text: a chain of stages, each of which takes the tokens of the one before, as in the
// `tokenizers` package, but one token at a time, so that text comes out as soon as it is sure. What
// comes out does not depend on how it is asked for.
//
// One thing differs: a run of byte tokens that is not UTF-8 as a whole is all U+FFFD in the
// package, which could not say a character before the run has ended. Here each whole character in
// it is text, and each other byte one U+FFFD.
#ifndef MAINARCH_TEXT_TEXT_DECODER_H_
#define MAINARCH_TEXT_TEXT_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "text/byte_level.h"

namespace mainarch::text {

enum class DecoderKind : uint8_t {
  kByteLevel,     // characters to the bytes that they are written for, all joined
  kByteFallback,  // "<0x0A>" to the byte
  kReplace,       // each `pattern` becomes `content`
  kStrip,         // up to `start` and `stop` times `content` at a token's ends
  kFuse,          // all tokens are one from here on
  kMetaspace,     // `content` becomes a space; in the first token nothing, if `drop_first`
  kWordPiece,     // a space before all but the first, unless it begins with `content`
  kSuffix,        // BPEDecoder: `content` becomes a space, at the end nothing
  kSpaces,        // a space between tokens: what the package does without a decoder
};

struct DecoderStage {
  DecoderKind kind = DecoderKind::kFuse;
  std::string pattern, content;
  uint32_t start = 0, stop = 0;
  bool drop_first = false;
  bool cleanup = false;  // WordPiece: no spaces before punctuation
};

class TextDecoder {
 public:
  void Add(DecoderStage stage);
  size_t size() const { return stages_.size(); }
  // The chain is ByteLevel and nothing else: tokens are bytes, to be joined.
  bool only_byte_level() const {
    return stages_.size() == 1 && stages_[0].kind == DecoderKind::kByteLevel;
  }

  // Where one text stands. Start with a default one.
  struct State {
    struct OfStage {
      std::string held;
      uint64_t tokens = 0;    // that came in
      uint32_t stripped = 0;  // times that kStrip has cut at the front
      bool begun = false;     // kStrip: there is nothing more to cut there
    };
    std::vector<OfStage> stages;
  };

  // Appends to `out` the text that is sure with `token`, its spelling.
  void Push(absl::string_view token, const ByteLevel& byte_level, State* state,
            std::string* out) const;
  // Appends the rest. The state then begins anew.
  void Finish(const ByteLevel& byte_level, State* state, std::string* out) const;

  // What a token stands for amid a text; of a byte token its byte, so perhaps not UTF-8.
  std::string Amid(absl::string_view token, const ByteLevel& byte_level) const;

 private:
  struct Run;

  std::vector<DecoderStage> stages_;
  std::vector<bool> fused_;  // whether the stage takes one endless token
};

// The byte of a token "<0x0A>", or -1.
int ByteOfToken(absl::string_view token);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TEXT_DECODER_H_
