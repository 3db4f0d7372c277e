// SPDX-License-Identifier: MIT
//
// Tokens to text as they come. The pieces joined are what Tokenizer::Decode gives for all the ids:
// the bytes of a character that several tokens share are held back until the last of them is there.
// One thread at a time; it keeps its Tokenizer alive.
#ifndef MAINARCH_TEXT_STREAM_DECODER_H_
#define MAINARCH_TEXT_STREAM_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace mainarch::text {

class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  // The text that `id` completes, valid UTF-8 and often empty.
  std::string Push(uint32_t id);
  // The rest: U+FFFD when a character is unfinished. The decoder may then start on other text.
  std::string Finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string held_;          // the start of a character, up to 3 bytes
  TextDecoder::State state_;  // where text is more than bytes joined
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_STREAM_DECODER_H_
