// SPDX-License-Identifier: MIT
//
// Integers of four bits in groups of columns of a row, each group with a scale s and a zero point
// z: s (q - z), eight in a word of 32 bits. Three layouts, W [rows, cols] being the weight:
//
//   compressed-tensors "pack-quantized"   word (r, c / 8) of [rows, cols / 8], nibble c % 8; zero
//   points
//       word (r / 8, g) of [rows / 8, groups], nibble r % 8. (It adds 8 to integers with a sign, to
//       both.)
//   GPTQ   word (c / 8, r) of [cols / 8, rows], nibble c % 8; zero points word (g, r / 8) of
//       [groups, rows / 8], nibble r % 8, less one
//   AWQ    word (c, r / 8) of [cols, rows / 8]; zero points word (g, r / 8) of [groups, rows / 8];
//   row r is
//       the nibble 0 4 1 5 2 6 3 7 of r % 8
#ifndef MAINARCH_KERNELS_QUANT_INT4_GROUPS_H_
#define MAINARCH_KERNELS_QUANT_INT4_GROUPS_H_

#include <stdint.h>

namespace mainarch::quant {

// Nibble n of word w, low ones first, at any address.
constexpr uint32_t WordNibble(const uint8_t* words, int64_t w, int64_t n) {
  return static_cast<uint32_t>(words[4 * w + n / 2]) >> (4 * (n % 2)) & 0xfu;
}
constexpr int64_t AwqNibble(int64_t row) { return row % 2 * 4 + row % 8 / 2; }

constexpr uint32_t PackedCode(const uint8_t* words, int64_t cols, int64_t row, int64_t col) {
  return WordNibble(words, row * (cols / 8) + col / 8, col % 8);
}
constexpr uint32_t PackedZero(const uint8_t* words, int64_t groups, int64_t row, int64_t group) {
  return WordNibble(words, row / 8 * groups + group, row % 8);
}
constexpr uint32_t GptqCode(const uint8_t* words, int64_t rows, int64_t row, int64_t col) {
  return WordNibble(words, col / 8 * rows + row, col % 8);
}
constexpr uint32_t GptqZero(const uint8_t* words, int64_t rows, int64_t row, int64_t group) {
  return WordNibble(words, group * (rows / 8) + row / 8, row % 8) + 1u;
}
// Also of zero points, with the group for the column.
constexpr uint32_t AwqCode(const uint8_t* words, int64_t rows, int64_t row, int64_t col) {
  return WordNibble(words, col * (rows / 8) + row / 8, AwqNibble(row));
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_INT4_GROUPS_H_
