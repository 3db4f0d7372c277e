// SPDX-License-Identifier: MIT
//
// GGUF's "K" blocks of 256 columns: a scale of fp16 for all, and for each group of columns a factor
// of it of six or eight bits. Definitions: ggml's block_q4_K, block_q5_K, block_q6_K and their
// dequantize_row_* (its common header and quants source).
//
//   Q4_K  d, dmin, 12 bytes of factors, 128 of nibbles          (d s) q - dmin m, groups of 32
//   Q5_K  d, dmin, 12 of factors, 32 of fifth bits, 128 nibbles  likewise
//   Q6_K  128 of nibbles, 64 of bits 4 and 5, 16 of s, d         (d s) (q - 32), groups of 16
//
// d s and dmin m are exact in fp32 (11 bits by 6 or 8); the rest rounds once.
#ifndef MAINARCH_KERNELS_QUANT_K_QUANTS_H_
#define MAINARCH_KERNELS_QUANT_K_QUANTS_H_

#include "kernels/quant/gguf_blocks.h"

namespace mainarch::quant {

inline constexpr int kKBlock = 256;
inline constexpr int kQ6KGroup = 16;  // columns of a factor; 32 of the others

// The factors of group g of eight: six bits each, the upper two of the last four groups in the
// upper bits of the first eight bytes.
constexpr uint8_t KScale(const uint8_t* factors, int g) {
  return static_cast<uint8_t>(g < 4 ? factors[g] & 63u
                                    : (factors[g + 4] & 0xfu) | (factors[g - 4] >> 6 << 4));
}
constexpr uint8_t KMin(const uint8_t* factors, int g) {
  return static_cast<uint8_t>(g < 4 ? factors[g + 4] & 63u
                                    : static_cast<uint32_t>(factors[g + 4] >> 4) |
                                          (factors[g] >> 6 << 4));
}

// Of 64 columns 32 bytes: the first 32 columns in the low nibbles.
constexpr uint32_t KNibble(const uint8_t* nibbles, int i) {
  return static_cast<uint32_t>(nibbles[i / 64 * 32 + i % 32]) >> (i % 64 / 32 * 4) & 0xfu;
}
constexpr uint32_t Q4KCode(const uint8_t* block, int i) { return KNibble(block + 16, i); }
// Byte j of the fifth bits has those of columns j, j + 32, ...
constexpr uint32_t Q5KCode(const uint8_t* block, int i) {
  return KNibble(block + 48, i) | (static_cast<uint32_t>(block[16 + i % 32]) >> (i / 32) & 1u) << 4;
}
// Of 128 columns 64 bytes of nibbles, columns 64 and on in the high ones, and 32 bytes of two more
// bits.
constexpr uint32_t Q6KCode(const uint8_t* block, int i) {
  const int half = i / 128, in = i % 128;
  const uint32_t low = static_cast<uint32_t>(block[64 * half + in % 64]) >> (in / 64 * 4) & 0xfu;
  return low | (static_cast<uint32_t>(block[128 + 32 * half + in % 32]) >> (in / 32 * 2) & 3u) << 4;
}

constexpr float KValue(const uint8_t* block, int i, uint32_t code) {
  const uint8_t* factors = block + 4;
  const float scale = F16ValueAt(block) * static_cast<float>(KScale(factors, i / 32));
  const float least = F16ValueAt(block + 2) * static_cast<float>(KMin(factors, i / 32));
  return scale * static_cast<float>(code) - least;
}
constexpr float FloatFromQ4K(const uint8_t* block, int i) {
  return KValue(block, i, Q4KCode(block, i));
}
constexpr float FloatFromQ5K(const uint8_t* block, int i) {
  return KValue(block, i, Q5KCode(block, i));
}
constexpr float FloatFromQ6K(const uint8_t* block, int i) {
  const float factor = static_cast<float>(static_cast<int8_t>(block[192 + i / kQ6KGroup]));
  return F16ValueAt(block + 208) * factor * (static_cast<float>(Q6KCode(block, i)) - 32.0f);
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_K_QUANTS_H_
