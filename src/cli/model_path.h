// SPDX-License-Identifier: MIT
//
// Where a checkpoint lies that is given as a path, or by the name that it was downloaded by.
// Nothing is ever fetched. Only the command knows names: the library takes paths.
#ifndef MAINARCH_CLI_MODEL_PATH_H_
#define MAINARCH_CLI_MODEL_PATH_H_

#include <string>

#include "base/status.h"

namespace mainarch::cli {

// `name` itself, if it is there or can be nothing but a path. Else Org/Name or Org/Name@revision is
// looked for in the cache of the Hugging Face tools: $HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, the first that is set. NotFound says
// where it was looked for and what to do.
StatusOr<std::string> ModelPath(const std::string& name);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_MODEL_PATH_H_
