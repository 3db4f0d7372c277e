// SPDX-License-Identifier: MIT
//
// A weight matrix as it lies in a checkpoint: raw bytes plus how to read them. Borrowed memory; the
// checkpoint that owns the bytes outlives every view. Which tensors make a matrix is decided from
// their dtypes in model/linear.h; this floor knows formats only.
#ifndef MAINARCH_QUANT_MATRIX_H_
#define MAINARCH_QUANT_MATRIX_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/quant/weight_format.h"

namespace mainarch::quant {

struct Matrix {
  Format format = Format::kBF16;
  int64_t rows = 0;  // out features
  int64_t cols = 0;  // in features
  // [rows, cols] row-major; kMxfp4: [rows, cols / 2] bytes; GGUF's formats: blocks of columns.
  absl::Span<const uint8_t> data;
  // kFp8Block: [ceil(rows / block_rows), ceil(cols / block_cols)]; kFp8Channel and
  // kInt8Channel: [rows] or [1];
  // kMxfp4: [rows, cols / 32]; kInt4Packed: [rows, groups]; kGptq and kAwq: [groups, rows]; kNvfp4:
  // [rows, cols / 16]; otherwise empty.
  absl::Span<const uint8_t> scale;
  // F32 or BF16 for FP8 and bytes, U8/F8_E8M0 for MXFP4, F16 or BF16 for groups of int4
  DType scale_dtype = DType::kF32;
  // Zero points of groups of int4 (kernels/quant/int4_groups.h); empty: all are 8.
  absl::Span<const uint8_t> zero;
  // Of groups of int4 whose columns do not lie group by group ("act-order"): the group of each column, int32;
  // empty: they do.
  absl::Span<const uint8_t> order;
  float factor = 1;  // kNvfp4: multiplies every scale
  int32_t block_rows = 1;
  int32_t block_cols = 1;  // of groups of int4: their columns
  // Of kBF16, kF16 and kF32 whose elements do not lie row by row: from one row, and from one column,
  // to the next, in elements. col_step 0: they do.
  int64_t row_step = 0;
  int64_t col_step = 0;
  // Not 0: the rows of each so many lie in pairs (StoredRow).
  int32_t paired_rows = 0;
  absl::string_view name;  // of the logical weight, for messages
};

// Where row `row` lies. Of paired rows the first half lies at the even places, the second at the odd
// ones: GGUF has the heads of a Llama's Q and K so, whose program turns neighbours where ours turns
// halves.
inline int64_t StoredRow(const Matrix& matrix, int64_t row) {
  if (matrix.paired_rows == 0) return row;
  const int64_t in = row % matrix.paired_rows, half = matrix.paired_rows / 2;
  return row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

absl::string_view NameOf(Format format);
// Bytes of data and scales that a matrix of this shape takes on disk.
uint64_t StoredBytes(Format format, int64_t rows, int64_t cols);
// The byte length of one row of `data`; cols is a multiple of the format's blocks.
int64_t RowBytes(Format format, int64_t cols);
// Row `row` of `data`, wherever it lies.
inline const uint8_t* RowData(const Matrix& matrix, int64_t row) {
  return matrix.data.data() + StoredRow(matrix, row) * RowBytes(matrix.format, matrix.cols);
}

// Of groups of int4: the code of an element, and what its group shares.
struct Int4Group {
  float scale = 0;
  uint32_t zero = 8;
};
uint32_t Int4Code(const Matrix& matrix, int64_t row, int64_t col);
// Of groups of int4, the group of a column: what Matrix::order says, within bounds, since the file may have changed
// after it was checked.
int64_t GroupOfColumn(const Matrix& matrix, int64_t col);
Int4Group GroupOf(const Matrix& matrix, int64_t row, int64_t group);

// Of kFp8Channel and kInt8Channel, what multiplies a row.
float RowScale(const Matrix& matrix, int64_t row);

// Exact values of columns [col, col + count) of one row, in fp32 (element times scale, one rounding).
// The plain, slow, obviously right way; every fast path is tested against it.
void DecodeRow(const Matrix& matrix, int64_t row, int64_t col, int64_t count, float* out);

}  // namespace mainarch::quant

#endif  // MAINARCH_QUANT_MATRIX_H_
