// SPDX-License-Identifier: MIT
//
// Knows whether this is still the process that made it. Threads, locks and device queues do not
// survive fork(2), so a child must not use objects of its parent.
#ifndef MAINARCH_DECODE_PROCESS_GUARD_H_
#define MAINARCH_DECODE_PROCESS_GUARD_H_

#include <sys/types.h>

#include "base/fd.h"
#include "base/status.h"

namespace mainarch::decode {

class ProcessGuard {
 public:
  static StatusOr<ProcessGuard> Create();

  // One load: the page holds 1, and the kernel gives a forked child a page of zeros.
  bool Ours() const;
  Status Check() const;

 private:
  Mapping page_;
  pid_t pid_ = 0;  // compared instead where the kernel cannot wipe a page (before Linux 4.14)
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_PROCESS_GUARD_H_
