// SPDX-License-Identifier: MIT
//
// What the packets of compute and copy queues have in common: addresses in two dwords, and the
// comparisons of a wait on memory.
#ifndef MAINARCH_SIM_PACKET_WORDS_H_
#define MAINARCH_SIM_PACKET_WORDS_H_

#include <cstdint>

namespace mainarch::sim {

constexpr uint64_t Address(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

// The three bits FUNCTION of WAIT_REG_MEM and POLL_REGMEM; 7 is reserved and never holds.
constexpr bool Compare(uint32_t function, uint32_t value, uint32_t reference) {
  switch (function) {
    case 0:
      return true;
    case 1:
      return value < reference;
    case 2:
      return value <= reference;
    case 3:
      return value == reference;
    case 4:
      return value != reference;
    case 5:
      return value >= reference;
    case 6:
      return value > reference;
    default:
      return false;
  }
}

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PACKET_WORDS_H_
