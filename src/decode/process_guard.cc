// SPDX-License-Identifier: MIT
#include "decode/process_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace mainarch::decode {

StatusOr<ProcessGuard> ProcessGuard::Create() {
  ProcessGuard guard;
  ASSIGN_OR_RETURN(guard.page_, Mapping::Anonymous(static_cast<size_t>(getpagesize()), false));
  if (madvise(guard.page_.data(), guard.page_.size(), MADV_WIPEONFORK) != 0) guard.pid_ = getpid();
  *guard.page_.data() = 1;
  return guard;
}

bool ProcessGuard::Ours() const {
  if (pid_ != 0) return pid_ == getpid();
  return *static_cast<const volatile uint8_t*>(page_.data()) == 1;
}

Status ProcessGuard::Check() const {
  if (Ours()) return OkStatus();
  return Error(Code::kWrongProcess, "this process (", getpid(),
               ") is a fork of the one that made the engine: make a new one after fork");
}

}  // namespace mainarch::decode
