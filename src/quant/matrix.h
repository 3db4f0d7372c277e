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
  // [rows, cols] row-major; kMxfp4: [rows, cols / 2] bytes.
  absl::Span<const uint8_t> data;
  // kFp8Block: [ceil(rows / block_rows), ceil(cols / block_cols)]; kFp8Channel: [rows] or [1];
  // kMxfp4: [rows, cols / 32]; otherwise empty.
  absl::Span<const uint8_t> scale;
  DType scale_dtype = DType::kF32;  // F32 or BF16 for FP8, U8/F8_E8M0 for MXFP4
  int32_t block_rows = 1;
  int32_t block_cols = 1;
  absl::string_view name;  // of the logical weight, for messages
};

absl::string_view NameOf(Format format);
// Bytes of data and scales that a matrix of this shape takes on disk.
uint64_t StoredBytes(Format format, int64_t rows, int64_t cols);
// The byte length of one row of `data`.
int64_t RowBytes(Format format, int64_t cols);

// Exact values of columns [col, col + count) of one row, in fp32 (element times scale, one rounding).
// The plain, slow, obviously right way; every fast path is tested against it.
void DecodeRow(const Matrix& matrix, int64_t row, int64_t col, int64_t count, float* out);

}  // namespace mainarch::quant

#endif  // MAINARCH_QUANT_MATRIX_H_
