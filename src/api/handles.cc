// SPDX-License-Identifier: MIT
#include "api/handles.h"

#include <unistd.h>

#include <utility>

namespace mainarch::api {

StatusOr<Origin> NewOrigin() {
  ASSIGN_OR_RETURN(decode::ProcessGuard guard, decode::ProcessGuard::Create());
  return Origin(std::make_shared<decode::ProcessGuard>(std::move(guard)));
}

Status CheckOrigin(const Origin& origin) {
  if (origin->Ours()) return OkStatus();
  return Error(Code::kWrongProcess, "this process (", getpid(),
               ") is a fork of the one that made the handle: open a group of its own after fork");
}

}  // namespace mainarch::api
