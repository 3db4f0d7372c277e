// SPDX-License-Identifier: MIT
//
// The numbers that KFD's topology files carry: capability bits, heap, cache and link types. The
// names in front of them are strings and live in the parser.
#ifndef MAINARCH_KFD_UAPI_KFD_SYSFS_H_
#define MAINARCH_KFD_UAPI_KFD_SYSFS_H_

#include <cstdint>

namespace mainarch::kfd::uapi {

inline constexpr char kTopologyRoot[] = "/sys/devices/virtual/kfd/kfd/topology";
inline constexpr char kKfdDevice[] = "/dev/kfd";
inline constexpr char kRenderNodePrefix[] = "/dev/dri/renderD";

// `capability`
inline constexpr uint32_t kCapWatchPoints = 1u << 7;
inline constexpr int kCapWatchPointsShift = 8;  // log2 of the number, four bits
inline constexpr int kCapDoorbellTypeShift = 12;
inline constexpr uint32_t kCapDoorbellTypeMask = 3u << kCapDoorbellTypeShift;
inline constexpr uint32_t kDoorbellType64Bit = 2;
inline constexpr uint32_t kCapAqlDoubleMap = 1u << 14;
inline constexpr uint32_t kCapTrapDebug = 1u << 15;
inline constexpr uint32_t kCapPreciseMemory = 1u << 18;
inline constexpr uint32_t kCapMemoryEcc = 1u << 20;
inline constexpr uint32_t kCapRasNotify = 1u << 21;
inline constexpr int kCapAsicRevisionShift = 22;
inline constexpr uint32_t kCapAsicRevisionMask = 0xfu << kCapAsicRevisionShift;
inline constexpr uint32_t kCapSramEcc = 1u << 26;
inline constexpr uint32_t kCapSvm = 1u << 27;
inline constexpr uint32_t kCapCoherentHost = 1u << 28;
inline constexpr uint32_t kCapDebugFirmware = 1u << 29;
inline constexpr uint32_t kCapQueueReset = 1u << 31;

// mem_banks/*/properties
inline constexpr uint32_t kHeapSystem = 0;
inline constexpr uint32_t kHeapFramebufferPublic = 1;  // the CPU sees all of it
inline constexpr uint32_t kHeapFramebufferPrivate = 2;

// caches/*/properties `type`
inline constexpr uint32_t kCacheData = 1;
inline constexpr uint32_t kCacheInstruction = 2;
inline constexpr uint32_t kCacheCpu = 4;
inline constexpr uint32_t kCacheHsaCu = 8;

// io_links/*/properties, p2p_links/*/properties
inline constexpr uint32_t kLinkPcie = 2;
inline constexpr uint32_t kLinkXgmi = 11;
inline constexpr uint32_t kLinkEnabled = 1u << 0;
inline constexpr uint32_t kLinkNonCoherent = 1u << 1;
inline constexpr uint32_t kLinkNoAtomics32 = 1u << 2;
inline constexpr uint32_t kLinkNoAtomics64 = 1u << 3;
inline constexpr uint32_t kLinkNoPeerDma = 1u << 4;

}  // namespace mainarch::kfd::uapi

#endif  // MAINARCH_KFD_UAPI_KFD_SYSFS_H_
