// SPDX-License-Identifier: MIT
#include "backend/amdgpu/threaded.h"

#include <cstring>

namespace mainarch::amdgpu {
namespace {

// AMD's "MI300 ISA" guide, formats SOPP and SOP1; a source 255 is the dword behind the instruction.
constexpr uint32_t kBranch = 0xbf820000;  // s_branch, of so many dwords from the next instruction on
constexpr uint32_t kMoveToS0 = 0xbe8000ff;  // s_mov_b32 s0, literal
constexpr uint32_t kMoveToS1 = 0xbe8100ff;
constexpr uint32_t kJumpToS01 = 0xbe801d00;  // s_setpc_b64 s[0:1]

}  // namespace

std::vector<uint8_t> ThreadedImage(const isa::KernelImage& image, uint64_t back) {
  std::vector<uint8_t> out(image.bytes.begin(), image.bytes.end());
  const uint32_t way[] = {kMoveToS0, static_cast<uint32_t>(back), kMoveToS1,
                          static_cast<uint32_t>(back >> 32), kJumpToS01};
  for (const isa::KernelInfo& kernel : image.kernels) {
    if (kernel.end_at == 0) continue;
    const int32_t dwords = (static_cast<int32_t>(kernel.way_back_at) -
                            static_cast<int32_t>(kernel.end_at)) / 4 - 1;
    const uint32_t branch = kBranch | (static_cast<uint32_t>(dwords) & 0xffff);
    std::memcpy(&out[kernel.end_at], &branch, sizeof(branch));
    std::memcpy(&out[kernel.way_back_at], way, sizeof(way));
  }
  return out;
}

}  // namespace mainarch::amdgpu
