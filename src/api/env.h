// SPDX-License-Identifier: MIT
//
// The environment, read here and nowhere else in the library, once at mainarch_group_open. (The virtual
// node's part, which is no part of the library, reads MAINARCH_SIM_LINES.)
#ifndef MAINARCH_API_ENV_H_
#define MAINARCH_API_ENV_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace mainarch::api {

struct Environment {
  std::string device;     // of MAINARCH_BACKEND and MAINARCH_DEVICES; empty: not set
  int32_t log_level = 0;  // of MAINARCH_LOG; 0: not set
};

// InvalidArgument names the variable. A program with more rights than its user (setuid) has an
// empty environment here.
StatusOr<Environment> ReadEnvironment();

}  // namespace mainarch::api

#endif  // MAINARCH_API_ENV_H_
