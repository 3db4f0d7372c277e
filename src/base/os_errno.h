// SPDX-License-Identifier: MIT
//
// The codes of system calls that open, make or look up a file.
#ifndef MAINARCH_BASE_OS_ERRNO_H_
#define MAINARCH_BASE_OS_ERRNO_H_

#include <cerrno>

#include "base/status.h"

namespace mainarch {

// The machine has no more of what the call needed: memory, or descriptors of the process or the system.
inline bool IsOutOfHostResources(int err) {
  return err == ENOMEM || err == EMFILE || err == ENFILE;
}

inline Code CodeOfFileErrno(int err) {
  if (err == ENOENT || err == ENOTDIR) return Code::kNotFound;
  if (err == EACCES || err == EPERM || err == EROFS) return Code::kPermission;
  return IsOutOfHostResources(err) ? Code::kOutOfHostMemory : Code::kIo;
}

}  // namespace mainarch

#endif  // MAINARCH_BASE_OS_ERRNO_H_
