// SPDX-License-Identifier: MIT
#include "gpu/queue_sizes.h"

#include <algorithm>

namespace mainarch::gpu {
namespace {

constexpr uint64_t kPage = 4096;

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// What one CU saves, and how many waves: the driver's constants for this generation.
constexpr uint64_t kVgprBytesPerCu = 0x80000;
constexpr uint64_t kSgprBytesPerCu = 0x4000;
constexpr uint64_t kHwregBytesPerCu = 0x1000;
constexpr uint64_t kSmallLdsBytesPerCu = 0x10000;  // used for every chip with up to 64 KiB
constexpr uint64_t kWavesPerCu = 40;
constexpr uint64_t kWavesPerEngine = 512;
constexpr uint64_t kControlStackBytesPerWave = 8;
constexpr uint64_t kControlStackHeader = 40 + 8;
constexpr uint64_t kDebugBytesPerWave = 32;

constexpr uint32_t kLanes = 64;
constexpr uint64_t kScratchGranule = 1024;  // bytes a wave
constexpr uint64_t kMaxTmpringWaves = 0xfff;
constexpr uint64_t kMaxTmpringKib = 0x1fff;

uint64_t XccCount(const kfd::NodeProperties& p) { return std::max<uint64_t>(p.num_xcc, 1); }

// Shader engines of one XCC; array_count counts all XCCs, simd_arrays_per_engine one.
uint64_t EnginesPerXcc(const kfd::NodeProperties& p) {
  return std::max<uint64_t>(
      p.array_count / XccCount(p) / std::max<uint64_t>(p.simd_arrays_per_engine, 1), 1);
}

}  // namespace

uint32_t ComputeUnits(const kfd::NodeProperties& p) {
  return static_cast<uint32_t>(p.simd_count / std::max<uint64_t>(p.simd_per_cu, 1));
}

uint32_t MaxWavesPerCu(const kfd::NodeProperties& p) {
  return static_cast<uint32_t>(p.max_waves_per_simd * p.simd_per_cu);
}

SaveAreaSizes ComputeSaveArea(const kfd::NodeProperties& p) {
  const uint64_t xccs = XccCount(p);
  const uint64_t cus = ComputeUnits(p) / xccs;
  const uint64_t waves = std::min(cus * kWavesPerCu, EnginesPerXcc(p) * kWavesPerEngine);
  const uint64_t lds = std::max(kSmallLdsBytesPerCu, p.lds_size_in_kb << 10);
  const uint64_t data =
      AlignUp(cus * (kVgprBytesPerCu + kSgprBytesPerCu + lds + kHwregBytesPerCu), kPage);
  SaveAreaSizes sizes;
  sizes.control_stack = static_cast<uint32_t>(
      AlignUp(kControlStackHeader + kControlStackBytesPerWave * waves, kPage));
  sizes.save_restore = static_cast<uint32_t>(data + sizes.control_stack);
  sizes.debug = static_cast<uint32_t>(AlignUp(kDebugBytesPerWave * waves, 64));
  sizes.total = AlignUp((uint64_t{sizes.save_restore} + sizes.debug) * xccs, kPage);
  return sizes;
}

SaveAreaSizes ChooseSaveArea(const kfd::NodeProperties& p) {
  SaveAreaSizes sizes = ComputeSaveArea(p);
  if (p.cwsr_size == 0 || p.ctl_stack_size == 0 || p.cwsr_size > UINT32_MAX ||
      p.ctl_stack_size > UINT32_MAX) {
    return sizes;
  }
  sizes.from_sysfs = true;
  sizes.control_stack = static_cast<uint32_t>(p.ctl_stack_size);
  sizes.save_restore = static_cast<uint32_t>(p.cwsr_size);
  sizes.total = AlignUp((p.cwsr_size + sizes.debug) * XccCount(p), kPage);
  return sizes;
}

ScratchSizes ComputeScratch(const kfd::NodeProperties& p, uint32_t bytes_per_lane,
                            uint64_t limit_bytes) {
  ScratchSizes sizes;
  const uint64_t wave_bytes = AlignUp(uint64_t{bytes_per_lane} * kLanes, kScratchGranule);
  if (wave_bytes == 0 || wave_bytes / kScratchGranule > kMaxTmpringKib) return sizes;
  const uint64_t xccs = XccCount(p);
  const uint64_t slots = ComputeUnits(p) / xccs * p.max_slots_scratch_cu;
  uint64_t waves = std::min({slots, kMaxTmpringWaves, limit_bytes / xccs / wave_bytes});
  waves -= waves % EnginesPerXcc(p);  // the hardware shares them out evenly
  if (waves == 0) return sizes;
  sizes.per_xcc = waves * wave_bytes;
  sizes.total = sizes.per_xcc * xccs;
  sizes.bytes_per_lane = static_cast<uint32_t>(wave_bytes / kLanes);
  sizes.tmpring = static_cast<uint32_t>(waves | wave_bytes / kScratchGranule << 12);
  return sizes;
}

}  // namespace mainarch::gpu
