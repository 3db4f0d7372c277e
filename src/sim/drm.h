// SPDX-License-Identifier: MIT
//
// The render node's own ioctls, as far as libdrm and runtimes ask while they look around: version,
// device information, memory use. Buffers are ioctl_gem.cc's; submission is not modelled.
#ifndef MAINARCH_SIM_DRM_H_
#define MAINARCH_SIM_DRM_H_

#include <cstdint>

#include "sim/node.h"

namespace mainarch::sim {

inline constexpr uint32_t kDrmIoctlType = 'd';

// Whether a request is for Process::GemIoctl: buffers, and what is submitted.
bool IsGem(uint32_t request);
int DrmIoctl(Node& node, uint32_t gpu, uint32_t request, void* argument);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_DRM_H_
