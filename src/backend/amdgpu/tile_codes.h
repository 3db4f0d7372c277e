// SPDX-License-Identifier: MIT
//
// Matrices whose checkpoint has codes of a few bits, as tiles of nibbles and of bytes have them
// (kernels/decoder_args.h): which code an element gets there, and what p and q of 32 columns are made of. They
// are those of the checkpoint's definitions, to the bit.
#ifndef MAINARCH_BACKEND_AMDGPU_TILE_CODES_H_
#define MAINARCH_BACKEND_AMDGPU_TILE_CODES_H_

#include <cstdint>

#include "kernels/quant/weight_format.h"
#include "quant/matrix.h"

namespace mainarch::amdgpu {

// Whether each 32 columns, counted from the matrix' first, have one p and q. What has not: groups of int4 of
// other sizes, or in any order.
bool CodesFitSteps(const quant::Matrix& matrix);
// `tile` is kNibble or kByte. Every format that has codes may be bytes; those of four bits nibbles.
quant::TileCode CodeOf(quant::Format format, quant::TileFormat tile);
// Of one element: 0 to 15 of a nibble; the bits of a byte.
uint8_t CodeAt(const quant::Matrix& matrix, quant::TileFormat tile, int64_t row, int64_t col);

// p and q, or the two numbers that they are made of.
struct CodeScale {
  float p = 0, q = 0;
};
// What steps' own factors are, and steps of 32 columns that share the two numbers: a power of two; 0: all of a row.
quant::TileFactors FactorsOf(quant::Format format);
int64_t StepsOfRecord(const quant::Matrix& matrix);
// Of the 32 columns from `col` on, a multiple of 32.
CodeScale RecordAt(const quant::Matrix& matrix, quant::TileFormat tile, int64_t row, int64_t col);
uint16_t FactorsAt(const quant::Matrix& matrix, int64_t row, int64_t col);
// p and q themselves, and the steps that share them.
CodeScale ScaleAt(const quant::Matrix& matrix, quant::TileFormat tile, int64_t row, int64_t col);
int64_t StepsOfScale(const quant::Matrix& matrix);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_TILE_CODES_H_
