// SPDX-License-Identifier: MIT
//
// Philox 4x32-10 (Salmon et al., SC 2011): four random words as a pure function of key and counter.
// Host and device.
#ifndef MAINARCH_KERNELS_COMMON_PHILOX_H_
#define MAINARCH_KERNELS_COMMON_PHILOX_H_

#include <stdint.h>

namespace mainarch::kernels {

struct PhiloxBlock {
  uint32_t word[4];
};

[[gnu::always_inline]] constexpr PhiloxBlock Philox(uint32_t key0, uint32_t key1,
                                                    PhiloxBlock counter) {
  PhiloxBlock c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// The random word of one vocabulary index: key is the seed, counter (index, position, stream).
[[gnu::always_inline]] constexpr uint32_t SampleWord(uint64_t seed, uint64_t position,
                                                     uint32_t stream, uint32_t index) {
  return Philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                {{index, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                  stream}})
      .word[0];
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_PHILOX_H_
