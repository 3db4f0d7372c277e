// SPDX-License-Identifier: MIT
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a random
// number is a function of a counter and a key, so it needs no state and no order.
#ifndef MAINARCH_DECODE_PHILOX_H_
#define MAINARCH_DECODE_PHILOX_H_

#include <array>
#include <cstdint>

namespace mainarch::decode {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// What a random number is for; each use of a (seed, position) has its own stream.
enum class Stream : uint32_t { kSample = 0 };

// Four vocabulary entries share a block: entry i takes word i % 4 of the block of i / 4.
inline PhiloxBlock RandomBlock(uint64_t seed, uint64_t position, uint32_t vocab_quad,
                               Stream stream) {
  return Philox({static_cast<uint32_t>(position), vocab_quad, static_cast<uint32_t>(stream),
                 static_cast<uint32_t>(position >> 32)},
                seed);
}

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_PHILOX_H_
