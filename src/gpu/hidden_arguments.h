// SPDX-License-Identifier: MIT
//
// The arguments that the compiler adds to a kernel (code object 5 and 6): counts and sizes of the
// grid, the dynamic LDS, the queue. A runtime fills them; kernels of ordinary HIP programs read
// blockDim and gridDim there. What this library has no equivalent of (printf and hostcall buffers,
// the device heap, default queues) stays zero, which is what a runtime passes when it is not used.
// Pure functions.
#ifndef MAINARCH_GPU_HIDDEN_ARGUMENTS_H_
#define MAINARCH_GPU_HIDDEN_ARGUMENTS_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "base/status.h"
#include "gpu/code_object.h"

namespace mainarch::gpu {

struct HiddenValues {
  std::array<uint32_t, 3> grid = {1, 1, 1};       // work-items
  std::array<uint32_t, 3> workgroup = {1, 1, 1};  // work-items
  uint32_t dynamic_lds_bytes = 0;
  uint64_t queue = 0;                          // amd_queue_t
  uint64_t shared_base = 0, private_base = 0;  // apertures, where a chip has no registers for them
};

// Writes the hidden arguments of `kernel` into its kernarg bytes; the others are left alone.
Status FillHiddenArguments(const CodeKernel& kernel, const HiddenValues& values,
                           absl::Span<uint8_t> kernarg);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_HIDDEN_ARGUMENTS_H_
