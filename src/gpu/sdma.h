// SPDX-License-Identifier: MIT
//
// Packets of the SDMA 4.4 copy engines (gfx942, gfx950). Pure functions that return dwords; ring,
// doorbell and splitting are copy_queue.h's business.
//
// A FENCE or an ATOMIC executes after the copies before it have landed; a WRITE may overtake them,
// so there is none here. The cache-control opcode of later chips does not exist on these.
#ifndef MAINARCH_GPU_SDMA_H_
#define MAINARCH_GPU_SDMA_H_

#include <array>
#include <cstdint>

namespace mainarch::gpu {

// The largest copy or fill that every source of facts agrees on, and a multiple of 32. A larger
// count is not refused by the engine: it is cut to its low 22 bits.
inline constexpr uint64_t kSdmaMaxBytes = 0x3fffe0;
inline constexpr uint64_t kSdmaCountField = 0x3fffff;

enum class PollFunction : uint32_t {
  kAlways = 0,
  kLess = 1,
  kLessEqual = 2,
  kEqual = 3,
  kNotEqual = 4,
  kGreaterEqual = 5,
  kGreater = 6,
};

constexpr uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// `bytes` is 1..kSdmaMaxBytes; any alignment, dwords are fastest.
constexpr std::array<uint32_t, 7> MakeCopy(uint64_t to, uint64_t from, uint64_t bytes) {
  return {1,       Low(bytes - 1) & uint32_t{kSdmaCountField}, 0, Low(from), High(from), Low(to),
          High(to)};
}

// One read, two writes.
constexpr std::array<uint32_t, 9> MakeBroadcastCopy(uint64_t to1, uint64_t to2, uint64_t from,
                                                    uint64_t bytes) {
  return {1u | 1u << 27,
          Low(bytes - 1) & uint32_t{kSdmaCountField},
          0,
          Low(from),
          High(from),
          Low(to1),
          High(to1),
          Low(to2),
          High(to2)};
}

// `bytes` a multiple of 4, `to` dword aligned.
constexpr std::array<uint32_t, 5> MakeFill(uint64_t to, uint32_t value, uint64_t bytes) {
  return {11u | 2u << 30, Low(to), High(to), value, Low(bytes - 4) & uint32_t{kSdmaCountField}};
}

// Stores 32 bits once everything before it has landed.
constexpr std::array<uint32_t, 4> MakeFence(uint64_t address, uint32_t value) {
  return {5, Low(address), High(address), value};
}

// Raises an interrupt; `context` is the event id, 28 bits.
constexpr std::array<uint32_t, 2> MakeTrap(uint32_t context) { return {6, context & 0x0fffffff}; }

// Holds the queue until (memory & mask) <function> reference; 32 bits. Retries for ever, yielding
// the engine at its quantum.
constexpr std::array<uint32_t, 6> MakePoll(uint64_t address, uint32_t reference, uint32_t mask,
                                           PollFunction function) {
  constexpr uint32_t kInterval = 4;  // of the engine's own units, between two reads
  constexpr uint32_t kForever = 0xfffu << 16;
  return {8u | static_cast<uint32_t>(function) << 28 | 1u << 31,
          Low(address),
          High(address),
          reference,
          mask,
          kInterval | kForever};
}

// Makes what the CPU wrote to VRAM through the bus visible to the engine.
constexpr std::array<uint32_t, 6> MakeHdpFlush() { return {8, 0, 0x80000000, 0, 0, 0}; }

// 64-bit add, in order like a fence. The link to the memory must carry 64-bit atomics.
constexpr std::array<uint32_t, 8> MakeAtomicAdd64(uint64_t address, int64_t addend) {
  constexpr uint32_t kAddReturn64 = 0x2f;
  const uint64_t value = static_cast<uint64_t>(addend);
  return {10u | kAddReturn64 << 25, Low(address), High(address), Low(value), High(value), 0, 0, 0};
}

// Stores the 100 MHz clock, 64 bits; `address` 32-byte aligned.
constexpr std::array<uint32_t, 3> MakeTimestamp(uint64_t address) {
  return {13u | 2u << 8, Low(address), High(address)};
}

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_SDMA_H_
