// SPDX-License-Identifier: MIT
//
// Which paths are the virtual node's, told by name alone: what a preloaded object asks of every
// path that a program opens, without a node and without its code.
#ifndef MAINARCH_SIM_VIRTUAL_PATHS_H_
#define MAINARCH_SIM_VIRTUAL_PATHS_H_

#include "absl/strings/string_view.h"

namespace mainarch::sim {

// Is the path that directory or below it?
bool IsUnder(absl::string_view path, absl::string_view directory);

// Is the path one that the virtual node answers for (whether or not it exists)?
bool IsVirtualPath(absl::string_view path);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_VIRTUAL_PATHS_H_
