// SPDX-License-Identifier: MIT
//
// GGUF's blocks of 32 columns: one scale of fp16 (of MXFP4 an exponent) and the codes. Codes of
// four bits lie sixteen apart: byte j has column j in its low nibble and column j + 16 in its high
// one. Definitions: ggml's block_* structures and dequantize_row_* (its common header and quants source).
//
//   Q8_0    d, 32 bytes with a sign           d q
//   Q4_0    d, 16 bytes                       d (q - 8)
//   Q4_1    d, m, 16 bytes                    d q + m
//   Q5_0    d, 32 fifth bits, 16 bytes        d (q - 16)
//   Q5_1    d, m, 32 fifth bits, 16 bytes     d q + m
//   IQ4_NL  d, 16 bytes                       d kIq4NlValues[q]
//   MXFP4   e8m0, 16 bytes of e2m1            2^(e - 127) e2m1(q)
#ifndef MAINARCH_KERNELS_QUANT_GGUF_BLOCKS_H_
#define MAINARCH_KERNELS_QUANT_GGUF_BLOCKS_H_

#include "kernels/quant/f16.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::quant {

inline constexpr int kGgufBlock = 32;

// Two bytes at any address.
constexpr uint16_t F16At(const uint8_t* at) {
  return static_cast<uint16_t>(at[0] | static_cast<uint32_t>(at[1]) << 8);
}
constexpr float F16ValueAt(const uint8_t* at) { return FloatFromF16(F16At(at)); }

// Column i of 16 bytes of nibbles.
constexpr uint32_t SplitNibble(const uint8_t* bytes, int i) {
  return i < 16 ? bytes[i] & 0xfu : static_cast<uint32_t>(bytes[i - 16]) >> 4;
}
// Column i of four bytes of fifth bits, as 0 or 16.
constexpr uint32_t FifthBit(const uint8_t* bytes, int i) {
  return (static_cast<uint32_t>(bytes[i / 8]) >> (i % 8) & 1u) << 4;
}

constexpr float FloatFromQ8_0(const uint8_t* block, int i) {
  return F16ValueAt(block) * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}
constexpr float FloatFromQ4_0(const uint8_t* block, int i) {
  return F16ValueAt(block) * (static_cast<float>(SplitNibble(block + 2, i)) - 8.0f);
}
constexpr float FloatFromQ4_1(const uint8_t* block, int i) {
  return F16ValueAt(block) * static_cast<float>(SplitNibble(block + 4, i)) + F16ValueAt(block + 2);
}
constexpr uint32_t Q5_0Code(const uint8_t* block, int i) {
  return SplitNibble(block + 6, i) | FifthBit(block + 2, i);
}
constexpr uint32_t Q5_1Code(const uint8_t* block, int i) {
  return SplitNibble(block + 8, i) | FifthBit(block + 4, i);
}
constexpr float FloatFromQ5_0(const uint8_t* block, int i) {
  return F16ValueAt(block) * (static_cast<float>(Q5_0Code(block, i)) - 16.0f);
}
constexpr float FloatFromQ5_1(const uint8_t* block, int i) {
  return F16ValueAt(block) * static_cast<float>(Q5_1Code(block, i)) + F16ValueAt(block + 2);
}
constexpr float FloatFromIq4Nl(const uint8_t* block, int i) {
  return F16ValueAt(block) * static_cast<float>(kIq4NlValues[SplitNibble(block + 2, i)]);
}
constexpr float FloatFromMxfp4Block(const uint8_t* block, int i) {
  return FloatFromE2m1(static_cast<uint8_t>(SplitNibble(block + 1, i))) * FloatFromE8m0(block[0]);
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_GGUF_BLOCKS_H_
