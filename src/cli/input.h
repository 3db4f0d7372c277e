// SPDX-License-Identifier: MIT
#ifndef MAINARCH_CLI_INPUT_H_
#define MAINARCH_CLI_INPUT_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace mainarch::cli {

// All of a file, or of stdin when `path` is empty or "-"; at most 1 GB.
StatusOr<std::string> ReadInput(const std::string& path);

// The tokenizer of a checkpoint's directory, of which nothing else is read, or of a GGUF file.
StatusOr<std::shared_ptr<const text::Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_INPUT_H_
