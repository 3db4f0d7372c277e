// SPDX-License-Identifier: MIT
//
// A second copy of an image's code, for the resident kernel (kernels/ops/resident.h): where a kernel
// would end, it jumps back to who jumped into it. Nothing else of it differs, so what an op computes
// is the same to the bit. The build has found each kernel's end, and a place near it that no kernel
// uses, for the instructions of the way back (kernels/tools/check.py).
#ifndef MAINARCH_BACKEND_AMDGPU_THREADED_H_
#define MAINARCH_BACKEND_AMDGPU_THREADED_H_

#include <cstdint>
#include <vector>

#include "isa/kernel_images.h"

namespace mainarch::amdgpu {

// The image's bytes, in which the kernels that can jump back do, to the instruction at `back`. Those
// that cannot (KernelInfo::end_at is 0) are as they were.
std::vector<uint8_t> ThreadedImage(const isa::KernelImage& image, uint64_t back);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_THREADED_H_
