// SPDX-License-Identifier: MIT
//
// The machine's dice (splitmix64): every choice that hardware leaves open is drawn from here, so
// that a seed names an order of events as far as one machine thread decides it.
#ifndef MAINARCH_SIM_RNG_H_
#define MAINARCH_SIM_RNG_H_

#include <cstdint>

namespace mainarch::sim {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(Next() % limit); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_RNG_H_
