// SPDX-License-Identifier: MIT
//
// The one PM4 command that an AQL-only driver cannot avoid: after code was written to an address
// that may have held other code, the instruction caches must forget it, and no AQL fence does that.
#ifndef MAINARCH_GPU_PM4_H_
#define MAINARCH_GPU_PM4_H_

#include <array>
#include <cstdint>

namespace mainarch::gpu {

inline constexpr uint32_t kPm4Nop = 0x10;
inline constexpr uint32_t kPm4IndirectBuffer = 0x3f;
inline constexpr uint32_t kPm4AcquireMem = 0x58;

// Type-3 header of a packet with `payload` dwords after it.
constexpr uint32_t Pm4Header(uint32_t opcode, uint32_t payload) {
  return 3u << 30 | (payload - 1) << 16 | opcode << 8;
}

// ACQUIRE_MEM over [address, address + size): instruction cache (bit 29), scalar cache (27), L2
// (23) with write-back (18). `address` and `size` are rounded outwards to 256 bytes.
inline std::array<uint32_t, 7> MakeInstructionInvalidate(uint64_t address, uint64_t size) {
  constexpr uint32_t kCoherControl = 1u << 29 | 1u << 27 | 1u << 23 | 1u << 18;
  const uint64_t begin = address >> 8;
  const uint64_t blocks = ((address + size + 255) >> 8) - begin;
  return {Pm4Header(kPm4AcquireMem, 6),
          kCoherControl,
          static_cast<uint32_t>(blocks),
          static_cast<uint32_t>(blocks >> 32),
          static_cast<uint32_t>(begin),
          static_cast<uint32_t>(begin >> 32),
          0};
}

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_PM4_H_
