// SPDX-License-Identifier: MIT
//
// The devices of this machine, before any is opened: what there is, and why something cannot be used.
// Reads what the system says of them; of a GPU it opens, and closes, the files that a group would.
#ifndef MAINARCH_BACKEND_DEVICES_H_
#define MAINARCH_BACKEND_DEVICES_H_

#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::backend {

struct ListedDevice {
  std::string device;  // the string that opens it: "cpu", "gpu:0"
  DeviceInfo info;     // what is known of it, also of one that cannot be used
  Status status;       // OK, or why it cannot be used
};

// The CPU.
StatusOr<ListedDevice> ListCpu();
// The GPUs that `sys` shows, in the order of their numbers. None where there is no driver or it
// shows none; one that is there but out of reach has a status.
StatusOr<std::vector<ListedDevice>> ListGpus(kfd::Sys& sys);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_DEVICES_H_
