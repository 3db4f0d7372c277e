// SPDX-License-Identifier: MIT
#include "quant/matrix.h"

#include <algorithm>
#include <cstring>

#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/gguf_blocks.h"
#include "kernels/quant/int4_groups.h"
#include "kernels/quant/k_quants.h"
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
  if (matrix.scale_dtype == DType::kF16) {
    return FloatFromF16(LoadUnaligned<uint16_t>(matrix.scale.data() + index * 2));
  }
  return LoadUnaligned<float>(matrix.scale.data() + index * 4);
}

float DecodeNvfp4(const Matrix& matrix, const uint8_t* row_data, int64_t row, int64_t col) {
  const int64_t index = row * (matrix.cols / kNvfp4Group) + col / kNvfp4Group;
  const float scale = FloatFromFp8E4m3(matrix.scale[static_cast<size_t>(index)]) * matrix.factor;
  return FloatFromE2m1(Mxfp4Nibble(row_data, col)) * scale;
}

float DecodeBlocks(Format format, const uint8_t* row_data, int64_t col) {
  const FormatInfo& info = InfoOf(format);
  const uint8_t* block = row_data + col / info.block_cols * info.block_bytes;
  const int i = static_cast<int>(col % info.block_cols);
  switch (format) {
    case Format::kQ8_0:
      return FloatFromQ8_0(block, i);
    case Format::kQ4_0:
      return FloatFromQ4_0(block, i);
    case Format::kQ4_1:
      return FloatFromQ4_1(block, i);
    case Format::kQ5_0:
      return FloatFromQ5_0(block, i);
    case Format::kQ5_1:
      return FloatFromQ5_1(block, i);
    case Format::kQ4K:
      return FloatFromQ4K(block, i);
    case Format::kQ5K:
      return FloatFromQ5K(block, i);
    case Format::kQ6K:
      return FloatFromQ6K(block, i);
    case Format::kIq4Nl:
      return FloatFromIq4Nl(block, i);
    case Format::kMxfp4Blocks:
      return FloatFromMxfp4Block(block, i);
    default:
      return 0;
  }
}

// Of columns that lie one behind the other, `run` from a multiple of it on with one factor.
template <class Element, class Factor>
void DecodeRuns(int64_t col, int64_t count, int64_t run, const Element& element, const Factor& factor, float* out) {
  for (int64_t c = col; c < col + count;) {
    const int64_t end = std::min(col + count, (c / run + 1) * run);
    const float scale = factor(c);
    for (; c < end; ++c) *out++ = element(c) * scale;
  }
}

// Of the formats that most weights have, columns together: references spend most of their time here. False: another one.
bool DecodeColumns(const Matrix& m, const uint8_t* row_data, int64_t row, int64_t col, int64_t count, float* out) {
  const auto fp8 = [&](int64_t c) { return FloatFromFp8E4m3(row_data[c]); };
  switch (m.format) {
    case Format::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = FloatFromBf16(LoadUnaligned<uint16_t>(row_data + (col + i) * 2));
      return true;
    case Format::kF32:
      for (int64_t i = 0; i < count; ++i) out[i] = LoadUnaligned<float>(row_data + (col + i) * 4);
      return true;
    case Format::kFp8Block: {
      const int64_t first = row / m.block_rows * CeilDivide(m.cols, m.block_cols);
      DecodeRuns(col, count, m.block_cols, fp8, [&](int64_t c) { return FloatScale(m, first + c / m.block_cols); }, out);
      return true;
    }
    case Format::kFp8Channel:
      DecodeRuns(col, count, m.cols, fp8, [&](int64_t) { return RowScale(m, row); }, out);
      return true;
    case Format::kMxfp4: {
      const int64_t first = row * (m.cols / kMxfp4Block);
      DecodeRuns(col, count, kMxfp4Block, [&](int64_t c) { return FloatFromE2m1(Mxfp4Nibble(row_data, c)); },
                 [&](int64_t c) { return FloatFromE8m0(m.scale[static_cast<size_t>(first + c / kMxfp4Block)]); }, out);
      return true;
    }
    default:
      return false;
  }
}

// `row` is where the row lies.
float Decode(const Matrix& matrix, const uint8_t* row_data, int64_t row, int64_t col) {
  float value;
  if (DecodeColumns(matrix, row_data, row, col, 1, &value)) return value;
  switch (matrix.format) {
    case Format::kF16:
      return FloatFromF16(LoadUnaligned<uint16_t>(row_data + col * 2));
    case Format::kInt8Channel:
      return static_cast<float>(static_cast<int8_t>(row_data[col])) * RowScale(matrix, row);
    case Format::kInt4Packed:
    case Format::kGptq:
    case Format::kAwq: {
      const Int4Group group = GroupOf(matrix, row, GroupOfColumn(matrix, col));
      return group.scale * (static_cast<float>(Int4Code(matrix, row, col)) - static_cast<float>(group.zero));
    }
    case Format::kNvfp4:
      return DecodeNvfp4(matrix, row_data, row, col);
    default:
      return DecodeBlocks(matrix.format, row_data, col);
  }
}

}  // namespace

int64_t GroupOfColumn(const Matrix& matrix, int64_t col) {
  if (matrix.order.empty()) return col / matrix.block_cols;
  const auto stored = LoadUnaligned<int32_t>(matrix.order.data() + 4 * col);
  return std::clamp<int64_t>(stored, 0, matrix.cols / matrix.block_cols - 1);
}

uint32_t Int4Code(const Matrix& matrix, int64_t row, int64_t col) {
  const uint8_t* words = matrix.data.data();
  if (matrix.format == Format::kGptq) return GptqCode(words, matrix.rows, row, col);
  if (matrix.format == Format::kAwq) return AwqCode(words, matrix.rows, row, col);
  return PackedCode(words, matrix.cols, row, col);
}

Int4Group GroupOf(const Matrix& matrix, int64_t row, int64_t group) {
  const int64_t groups = matrix.cols / matrix.block_cols;
  const bool packed = matrix.format == Format::kInt4Packed;
  Int4Group out;
  out.scale = FloatScale(matrix, packed ? row * groups + group : group * matrix.rows + row);
  if (matrix.zero.empty()) return out;
  const uint8_t* words = matrix.zero.data();
  if (packed) {
    out.zero = PackedZero(words, groups, row, group);
  } else if (matrix.format == Format::kGptq) {
    out.zero = GptqZero(words, matrix.rows, row, group);
  } else {
    out.zero = AwqCode(words, matrix.rows, row, group);
  }
  return out;
}

float RowScale(const Matrix& matrix, int64_t row) {
  const bool one_for_all = matrix.scale.size() == BytesOf(matrix.scale_dtype);
  return FloatScale(matrix, one_for_all ? 0 : row);
}

absl::string_view NameOf(Format format) { return InfoOf(format).name; }

int64_t RowBytes(Format format, int64_t cols) {
  const FormatInfo& info = InfoOf(format);
  if (info.block_cols != 0) return cols / info.block_cols * info.block_bytes;
  return cols * info.element_bits / 8;
}

uint64_t StoredBytes(Format format, int64_t rows, int64_t cols) {
  const FormatInfo& info = InfoOf(format);
  // (A shard may begin or end inside a block.)
  if (info.block_cols != 0) return static_cast<uint64_t>(rows * cols) * info.block_bytes / info.block_cols;
  const auto blocks = [](int64_t n, uint32_t shared) {
    return shared == 0 ? 1 : CeilDivide(n, int64_t{shared});
  };
  const int64_t scales = blocks(rows, info.scale_rows) * blocks(cols, info.scale_cols);
  return static_cast<uint64_t>(rows * RowBytes(format, cols) + scales * info.scale_bytes);
}

void DecodeRow(const Matrix& matrix, int64_t row, int64_t col, int64_t count, float* out) {
  if (matrix.col_step != 0) {
    const uint8_t* first = matrix.data.data() + RowBytes(matrix.format, row * matrix.row_step);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = Decode(matrix, first, row, (col + i) * matrix.col_step);
    }
    return;
  }
  const uint8_t* row_data = RowData(matrix, row);
  const int64_t stored = StoredRow(matrix, row);
  if (DecodeColumns(matrix, row_data, stored, col, count, out)) return;
  for (int64_t i = 0; i < count; ++i) out[i] = Decode(matrix, row_data, stored, col + i);
}

}  // namespace mainarch::quant
