// SPDX-License-Identifier: MIT
//
// The render node's own ioctls, as far as libdrm and runtimes ask while they look around: version,
// device information, memory use. Buffers and submission through DRM are not modelled.
#ifndef MAINARCH_SIM_DRM_H_
#define MAINARCH_SIM_DRM_H_

#include <cstdint>

#include "sim/node.h"

namespace mainarch::sim {

inline constexpr uint32_t kDrmIoctlType = 'd';

int DrmIoctl(Node& node, uint32_t gpu, uint32_t request, void* argument);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_DRM_H_
