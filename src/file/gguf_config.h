// SPDX-License-Identifier: MIT
//
// The metadata of a GGUF file as the config.json that a Hugging Face checkpoint of the same model
// has.
#ifndef MAINARCH_FILE_GGUF_CONFIG_H_
#define MAINARCH_FILE_GGUF_CONFIG_H_

#include <string>

#include "base/status.h"
#include "file/gguf.h"
#include "file/gguf_archs.h"

namespace mainarch::file {

StatusOr<std::string> GgufConfigJson(const GgufContents& contents, const GgufArch& arch);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_CONFIG_H_
