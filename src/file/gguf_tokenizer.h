// SPDX-License-Identifier: MIT
//
// What a GGUF file says of its special tokens and of chats, as the tokenizer_config.json that a
// Hugging Face checkpoint of the same model has. (The vocabulary itself is
// model/checkpoint_tokenizer.h's.)
#ifndef MAINARCH_FILE_GGUF_TOKENIZER_H_
#define MAINARCH_FILE_GGUF_TOKENIZER_H_

#include <string>

#include "base/status.h"
#include "file/gguf.h"

namespace mainarch::file {

StatusOr<std::string> GgufTokenizerConfig(const GgufMetadata& metadata);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_TOKENIZER_H_
