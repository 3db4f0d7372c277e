// SPDX-License-Identifier: MIT
//
// Files that are installed with the library and for it alone (what it loads, what the command
// preloads). They are found from the place of the object that this code is in, and from nothing
// that a user writes.
#ifndef MAINARCH_KFD_PRIVATE_FILE_H_
#define MAINARCH_KFD_PRIVATE_FILE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::kfd {

// The path of the file `name`. NotFound says where it would lie.
StatusOr<std::string> FindPrivateFile(absl::string_view name);

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_PRIVATE_FILE_H_
