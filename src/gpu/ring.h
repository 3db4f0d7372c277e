// SPDX-License-Identifier: MIT
//
// What a compute queue and a copy queue do alike: the memory both sides poll, the wait for a point
// of the own timeline, and the end.
#ifndef MAINARCH_GPU_RING_H_
#define MAINARCH_GPU_RING_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "gpu/memory.h"
#include "gpu/timeline.h"
#include "gpu/wait.h"

namespace mainarch::gpu {

class Device;
class Process;

// Host memory that no cache keeps: rings, pointers, descriptors. `label` is static text.
BufferOptions SharedWords(const char* label, bool executable);

// Waits for a point that was issued. `health`: what else may end the wait. `describe`: the queue as
// it stands, asked for when time is up.
Status WaitForPoint(Device& device, Timeline& timeline, const char* label, uint64_t point,
                    Deadline deadline, absl::FunctionRef<Status()> health,
                    absl::FunctionRef<std::string()> describe);

// Destroys a queue in the driver whatever it is doing; does nothing in a forked child. Tried twice:
// a hung queue answers ETIME or EIO and is gone all the same, then the second try answers EINVAL.
void DestroyInDriver(Process& process, uint32_t queue_id);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_RING_H_
