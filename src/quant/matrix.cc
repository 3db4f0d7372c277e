// SPDX-License-Identifier: MIT
#include "quant/matrix.h"

#include <cstring>

#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::quant {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Checkpoint bytes may lie at any address.
template <class T>
T LoadUnaligned(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float FloatScale(const Matrix& matrix, int64_t index) {
  if (matrix.scale_dtype == DType::kBF16) {
    return FloatFromBf16(LoadUnaligned<uint16_t>(matrix.scale.data() + index * 2));
  }
  return LoadUnaligned<float>(matrix.scale.data() + index * 4);
}

float DecodeFp8Block(const Matrix& matrix, const uint8_t* row_data, int64_t row, int64_t col) {
  const int64_t blocks = CeilDivide(matrix.cols, matrix.block_cols);
  const int64_t index = (row / matrix.block_rows) * blocks + col / matrix.block_cols;
  return FloatFromFp8E4m3(row_data[col]) * FloatScale(matrix, index);
}

float DecodeFp8Channel(const Matrix& matrix, const uint8_t* row_data, int64_t row, int64_t col) {
  const bool one_for_all = matrix.scale.size() == BytesOf(matrix.scale_dtype);
  return FloatFromFp8E4m3(row_data[col]) * FloatScale(matrix, one_for_all ? 0 : row);
}

float DecodeMxfp4(const Matrix& matrix, const uint8_t* row_data, int64_t row, int64_t col) {
  const int64_t index = row * (matrix.cols / kMxfp4Block) + col / kMxfp4Block;
  return FloatFromE2m1(Mxfp4Nibble(row_data, col)) * FloatFromE8m0(matrix.scale[index]);
}

float Decode(const Matrix& matrix, const uint8_t* row_data, int64_t row, int64_t col) {
  switch (matrix.format) {
    case Format::kBF16:
      return FloatFromBf16(LoadUnaligned<uint16_t>(row_data + col * 2));
    case Format::kF16:
      return FloatFromF16(LoadUnaligned<uint16_t>(row_data + col * 2));
    case Format::kF32:
      return LoadUnaligned<float>(row_data + col * 4);
    case Format::kFp8Block:
      return DecodeFp8Block(matrix, row_data, row, col);
    case Format::kFp8Channel:
      return DecodeFp8Channel(matrix, row_data, row, col);
    case Format::kMxfp4:
      return DecodeMxfp4(matrix, row_data, row, col);
  }
  return 0;
}

}  // namespace

absl::string_view NameOf(Format format) { return InfoOf(format).name; }

int64_t RowBytes(Format format, int64_t cols) { return cols * InfoOf(format).element_bits / 8; }

uint64_t StoredBytes(Format format, int64_t rows, int64_t cols) {
  const FormatInfo& info = InfoOf(format);
  const auto blocks = [](int64_t n, uint32_t shared) {
    return shared == 0 ? 1 : CeilDivide(n, int64_t{shared});
  };
  const int64_t scales = blocks(rows, info.scale_rows) * blocks(cols, info.scale_cols);
  return static_cast<uint64_t>(rows * RowBytes(format, cols) + scales * info.scale_bytes);
}

void DecodeRow(const Matrix& matrix, int64_t row, int64_t col, int64_t count, float* out) {
  const uint8_t* row_data = matrix.data.data() + row * RowBytes(matrix.format, matrix.cols);
  for (int64_t i = 0; i < count; ++i) out[i] = Decode(matrix, row_data, row, col + i);
}

}  // namespace mainarch::quant
