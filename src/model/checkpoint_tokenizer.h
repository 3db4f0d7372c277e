// SPDX-License-Identifier: MIT
//
// The tokenizer of a checkpoint: of its tokenizer.json, or of a GGUF file's vocabulary.
#ifndef MAINARCH_MODEL_CHECKPOINT_TOKENIZER_H_
#define MAINARCH_MODEL_CHECKPOINT_TOKENIZER_H_

#include <memory>

#include "base/status.h"
#include "file/checkpoint.h"
#include "text/tokenizer.h"

namespace mainarch::model {

bool HasTokenizer(const file::Checkpoint& checkpoint);

// NotFound when it has none. Read anew by each call.
StatusOr<std::shared_ptr<const text::Tokenizer>> ReadTokenizer(const file::Checkpoint& checkpoint);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_CHECKPOINT_TOKENIZER_H_
