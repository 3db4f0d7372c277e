// SPDX-License-Identifier: MIT
#include "sim/virtual_paths.h"

#include "absl/strings/match.h"

namespace mainarch::sim {

bool IsUnder(absl::string_view path, absl::string_view directory) {
  return absl::StartsWith(path, directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

bool IsVirtualPath(absl::string_view path) {
  for (absl::string_view root :
       {"/dev/kfd", "/dev/dri", "/sys/class/kfd", "/sys/devices/virtual/kfd", "/sys/class/drm",
        "/sys/module/amdgpu", "/sys/bus/pci/devices", "/proc/modules"}) {
    if (IsUnder(path, root)) return true;
  }
  return absl::StartsWith(path, "/sys/dev/char/226:");
}

}  // namespace mainarch::sim
