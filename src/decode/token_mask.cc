// SPDX-License-Identifier: MIT
#include "decode/token_mask.h"

#include <algorithm>

namespace mainarch::decode {

Status TokenMask::Set(absl::Span<const uint32_t> words, uint32_t vocab) {
  const uint32_t most = MaskWords(vocab);
  if (words.size() > most) {
    return Error(Code::kInvalidArgument, "a mask of ", words.size(), " words: a vocabulary of ",
                 vocab, " has ", most);
  }
  words_.resize(most);
  std::fill(std::copy(words.begin(), words.end(), words_.begin()), words_.end(), 0);
  set_ = true;
  return OkStatus();
}

}  // namespace mainarch::decode
