// SPDX-License-Identifier: MIT
//
// GGUF files by their names: parts of one that llama-gguf-split has cut, and what a directory holds.
#ifndef MAINARCH_FILE_GGUF_PARTS_H_
#define MAINARCH_FILE_GGUF_PARTS_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace mainarch::file {

// "-00001-of-00003.gguf": of the part with that index (from 0).
std::string GgufPartSuffix(int64_t index, int64_t count);
// The path of another part of the one whose first is `first`; empty when that is not called so.
std::string GgufPartPath(const std::string& first, int64_t index, int64_t count);
// The one GGUF file of a directory, of a split one the first part; empty when there is none, BadModel when
// there are several.
StatusOr<std::string> GgufIn(const std::string& directory);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_PARTS_H_
