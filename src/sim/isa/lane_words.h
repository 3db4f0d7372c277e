// SPDX-License-Identifier: MIT
//
// One lane's dwords to and from memory. Aligned pairs travel as one word of 8 bytes: other threads,
// which play other GPUs, see both halves or neither. Protocols that put data and its flag into one
// such word (RCCL's LL) rest on that, and hardware keeps it.
#ifndef MAINARCH_SIM_ISA_LANE_WORDS_H_
#define MAINARCH_SIM_ISA_LANE_WORDS_H_

#include <cstdint>
#include <cstring>

namespace mainarch::sim::isa {

typedef uint64_t MemoryWord [[gnu::may_alias]];

inline uint64_t LoadWord(const uint8_t* from) {
  uint64_t word;
  if (reinterpret_cast<uintptr_t>(from) % 8 == 0) {
    return __atomic_load_n(reinterpret_cast<const MemoryWord*>(from), __ATOMIC_RELAXED);
  }
  std::memcpy(&word, from, sizeof(word));
  return word;
}
inline void StoreWord(uint8_t* to, uint64_t word) {
  if (reinterpret_cast<uintptr_t>(to) % 8 == 0) {
    __atomic_store_n(reinterpret_cast<MemoryWord*>(to), word, __ATOMIC_RELAXED);
  } else {
    std::memcpy(to, &word, sizeof(word));
  }
}

// Dword k of the lane is regs[k * stride].
template <int kDwords, int kStride>
void LoadLane(const uint8_t* from, uint32_t* regs) {
  for (int k = 0; k + 1 < kDwords; k += 2) {
    const uint64_t word = LoadWord(from + 4 * k);
    regs[k * kStride] = static_cast<uint32_t>(word);
    regs[(k + 1) * kStride] = static_cast<uint32_t>(word >> 32);
  }
  if (kDwords % 2 != 0) std::memcpy(&regs[(kDwords - 1) * kStride], from + 4 * (kDwords - 1), 4);
}
template <int kDwords, int kStride>
void StoreLane(uint8_t* to, const uint32_t* regs) {
  for (int k = 0; k + 1 < kDwords; k += 2) {
    StoreWord(to + 4 * k, regs[k * kStride] | uint64_t{regs[(k + 1) * kStride]} << 32);
  }
  if (kDwords % 2 != 0) std::memcpy(to + 4 * (kDwords - 1), &regs[(kDwords - 1) * kStride], 4);
}

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_LANE_WORDS_H_
