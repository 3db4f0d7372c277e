// SPDX-License-Identifier: MIT
//
// What memory holds that nobody has written: a pattern made of the address, so that a checker can
// tell it from data without being told of every store of the host. A word counts as unwritten when
// it and another word of its sixteen bytes hold the pattern: 1 in 2^64 for data that is random.
#ifndef MAINARCH_SIM_POISON_H_
#define MAINARCH_SIM_POISON_H_

#include <cstdint>
#include <cstring>

namespace mainarch::sim {

// Of the aligned word at device address `va`.
constexpr uint32_t PoisonWord(uint64_t va) {
  uint64_t x = (va >> 2) * 0x9e3779b97f4a7c15;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9;
  return static_cast<uint32_t>(x >> 32) | 1;
}

// Fills [va, va + size), which lies at `host`; whole words only.
inline void Poison(uint64_t va, uint8_t* host, uint64_t size) {
  for (uint64_t at = (4 - (va & 3)) & 3; at + 4 <= size; at += 4) {
    const uint32_t word = PoisonWord(va + at);
    std::memcpy(host + at, &word, 4);
  }
}

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_POISON_H_
