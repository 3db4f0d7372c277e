// SPDX-License-Identifier: MIT
//
// The fixed numbers of an AMD GPU code object: ELF identity, relocations, the 64-byte kernel
// descriptor. Shared by the loader, which checks and places objects, and by whatever executes them.
#ifndef MAINARCH_ISA_CODE_OBJECT_H_
#define MAINARCH_ISA_CODE_OBJECT_H_

#include <cstddef>
#include <cstdint>

namespace mainarch::isa {

inline constexpr uint16_t kElfMachineAmdgpu = 224;
inline constexpr uint8_t kElfOsAbiAmdgpuHsa = 64;
inline constexpr uint8_t kElfAbiVersionV4 = 2;
inline constexpr uint8_t kElfAbiVersionV5 = 3;
inline constexpr uint8_t kElfAbiVersionV6 = 4;

// e_flags
inline constexpr uint32_t kElfMachMask = 0xff;
inline constexpr uint32_t kElfXnackMask = 0x300;
inline constexpr uint32_t kElfXnackOn = 0x300;
inline constexpr uint32_t kElfSramEccMask = 0xc00;
inline constexpr uint32_t kElfSramEccOff = 0x800;
inline constexpr uint32_t kElfMachGfx9_4Generic = 0x5f;

// Relocations that may be left in a linked object; all others are resolved by the linker.
inline constexpr uint32_t kRelocNone = 0;
inline constexpr uint32_t kRelocAbs64 = 3;
inline constexpr uint32_t kRelocRel64 = 5;
inline constexpr uint32_t kRelocRelative64 = 13;

inline constexpr uint32_t kNoteMetadata = 32;  // NT_AMDGPU_METADATA, owner "AMDGPU"

struct KernelDescriptor {
  uint32_t group_segment_fixed_size;    // static LDS bytes
  uint32_t private_segment_fixed_size;  // scratch bytes a work-item
  uint32_t kernarg_size;
  uint32_t reserved0;
  int64_t kernel_code_entry_byte_offset;  // from the descriptor
  uint8_t reserved1[20];
  uint32_t compute_pgm_rsrc3;
  uint32_t compute_pgm_rsrc1;
  uint32_t compute_pgm_rsrc2;
  uint16_t kernel_code_properties;
  uint16_t kernarg_preload;
  uint8_t reserved2[4];
};

static_assert(sizeof(KernelDescriptor) == 64);
static_assert(offsetof(KernelDescriptor, kernel_code_entry_byte_offset) == 16);
static_assert(offsetof(KernelDescriptor, compute_pgm_rsrc3) == 44);
static_assert(offsetof(KernelDescriptor, compute_pgm_rsrc1) == 48);
static_assert(offsetof(KernelDescriptor, compute_pgm_rsrc2) == 52);
static_assert(offsetof(KernelDescriptor, kernel_code_properties) == 56);
static_assert(offsetof(KernelDescriptor, kernarg_preload) == 58);

// kernel_code_properties
inline constexpr uint16_t kPropertyPrivateSegmentBuffer = 1u << 0;
inline constexpr uint16_t kPropertyDispatchPtr = 1u << 1;
inline constexpr uint16_t kPropertyQueuePtr = 1u << 2;
inline constexpr uint16_t kPropertyKernargPtr = 1u << 3;
inline constexpr uint16_t kPropertyDispatchId = 1u << 4;
inline constexpr uint16_t kPropertyFlatScratchInit = 1u << 5;
inline constexpr uint16_t kPropertyPrivateSegmentSize = 1u << 6;
inline constexpr uint16_t kPropertyWave32 = 1u << 10;
inline constexpr uint16_t kPropertyDynamicStack = 1u << 11;
inline constexpr uint16_t kPropertyReserved = 0xf380;  // [9:7] and [15:12]

// Of a kernel with recursion or calls through pointers, whose need the compiler does not know: what
// is left to it beyond its fixed part. (HIP's runtime gives 1 KiB unless told otherwise.)
inline constexpr uint32_t kLeastDynamicStack = 1024;

inline constexpr uint32_t kKernelCodeAlignment = 256;
inline constexpr uint32_t kKernelDescriptorAlignment = 64;

}  // namespace mainarch::isa

#endif  // MAINARCH_ISA_CODE_OBJECT_H_
