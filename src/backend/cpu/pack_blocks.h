// SPDX-License-Identifier: MIT
//
// Panels of the formats whose columns lie in blocks together with their scales (GGUF): codes are
// sorted out of the blocks, eight columns of a row at a time, and scales into theirs. No value
// changes.
#ifndef MAINARCH_BACKEND_CPU_PACK_BLOCKS_H_
#define MAINARCH_BACKEND_CPU_PACK_BLOCKS_H_

#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/row_places.h"

namespace mainarch::cpu {

// Columns that share a scale, of a format in blocks: where shards may begin.
int32_t GroupColumns(quant::Format format);

// Sets group_cols and group_offset of the panels of a shard that begins at `col`; returns the bytes
// of a panel's scales. layout->cols is set.
size_t SizeBlockScales(quant::Format format, int64_t col, Panels* layout);

// One panel into zeroes: of rows[16] the `cols` columns from RowPlace::col on, whole groups of
// them.
void PackBlocks(quant::Format format, const Panels& layout, const backend::RowPlace* rows,
                int64_t cols, uint8_t* out);

// The same of four bits in groups of columns, which have a scale and a zero point each.
size_t SizeInt4Groups(const quant::Matrix& matrix, int64_t col, Panels* layout);
// And where columns are of any group (Matrix::order), bounded: the file may have changed since it was checked.
size_t SizeInt4Order(const quant::Matrix& matrix, Panels* layout);
void PackInt4Order(const Panels& layout, const backend::RowPlace* rows, int64_t cols, uint8_t* out);
void PackInt4Groups(const Panels& layout, const backend::RowPlace* rows, int64_t cols,
                    uint8_t* out);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_PACK_BLOCKS_H_
