// SPDX-License-Identifier: MIT
#ifndef MAINARCH_CLI_INPUT_H_
#define MAINARCH_CLI_INPUT_H_

#include <string>

#include "base/status.h"

namespace mainarch::cli {

// All of a file, or of stdin when `path` is empty or "-"; at most 1 GB.
StatusOr<std::string> ReadInput(const std::string& path);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_INPUT_H_
