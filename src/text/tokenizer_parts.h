// SPDX-License-Identifier: MIT
//
// What a tokenizer is made of, whichever file said so.
#ifndef MAINARCH_TEXT_TOKENIZER_PARTS_H_
#define MAINARCH_TEXT_TOKENIZER_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/text_decoder.h"
#include "text/token_model.h"

namespace mainarch::text {

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  // Pieces come as the characters that bytes are written as, and are to be turned back.
  bool mapped = false;
  TokenModelParts model;
  std::vector<AddedToken> added;  // in the order of the file
  TextDecoder decoder;
  std::vector<uint32_t> before, after;  // that are put around a text on demand
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_TOKENIZER_PARTS_H_
