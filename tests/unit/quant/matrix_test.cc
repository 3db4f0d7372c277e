// SPDX-License-Identifier: MIT
#include "quant/matrix.h"

#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/mxfp4.h"
#include "ops/random_matrices.h"
#include "support/test.h"

namespace mainarch::quant {
namespace {

// Bytes at an odd address, as a checkpoint may have them.
struct Odd {
  explicit Odd(const void* data, size_t size) : bytes(size + 1) {
    std::memcpy(bytes.data() + 1, data, size);
  }
  template <class T>
  explicit Odd(const std::vector<T>& data) : Odd(data.data(), data.size() * sizeof(T)) {}
  absl::Span<const uint8_t> span() const { return absl::MakeConstSpan(bytes).subspan(1); }
  std::vector<uint8_t> bytes;
};

Matrix Make(Format format, int64_t rows, int64_t cols, const Odd& data) {
  Matrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.data = data.span();
  return matrix;
}

TEST(plain_rows_decode_at_any_address) {
  std::vector<uint16_t> bf16, f16;
  std::vector<float> f32;
  for (int i = 0; i < 15; ++i) {
    const float value = 0.25f * static_cast<float>(i - 7);
    bf16.push_back(Bf16FromFloat(value));
    f16.push_back(F16FromFloat(value));
    f32.push_back(value);
  }
  const Odd a(bf16), b(f16), c(f32);
  for (const Matrix& matrix :
       {Make(Format::kBF16, 3, 5, a), Make(Format::kF16, 3, 5, b), Make(Format::kF32, 3, 5, c)}) {
    float row[3];
    DecodeRow(matrix, 2, 1, 3, row);
    for (int i = 0; i < 3; ++i) CHECK_EQ(row[i], f32[11 + i]);
  }
}

TEST(fp8_blocks_scale_by_row_and_column_ragged_ones_too) {
  const int64_t rows = 5, cols = 7;  // blocks of 2 x 3: a grid of 3 x 3, the last ones ragged
  std::vector<uint8_t> codes;
  for (int i = 0; i < rows * cols; ++i) codes.push_back(uint8_t(i * 3));
  std::vector<float> scales;
  std::vector<uint16_t> bf16_scales;
  for (int i = 0; i < 9; ++i) {
    scales.push_back(static_cast<float>(1 + i) / 8);
    bf16_scales.push_back(Bf16FromFloat(scales.back()));
  }
  const Odd data(codes), f32(scales), bf16(bf16_scales);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Matrix matrix = Make(Format::kFp8Block, rows, cols, data);
    matrix.scale = dtype == DType::kF32 ? f32.span() : bf16.span();
    matrix.scale_dtype = dtype;
    matrix.block_rows = 2;
    matrix.block_cols = 3;
    for (int64_t r = 0; r < rows; ++r) {
      float row[7];
      DecodeRow(matrix, r, 0, cols, row);
      for (int64_t c = 0; c < cols; ++c) {
        const float expected = FloatFromFp8E4m3(codes[r * cols + c]) * scales[(r / 2) * 3 + c / 3];
        CHECK_EQ(row[c], expected);
      }
    }
  }
}

TEST(fp8_channels_scale_by_row_or_all_at_once) {
  const std::vector<uint8_t> codes = {0x38, 0x40, 0x48, 0xb8, 0xc0, 0xc8};  // 1 2 4 -1 -2 -4
  const std::vector<float> two = {3, 5}, one = {7};
  const Odd data(codes), per_row(two), per_tensor(one);
  Matrix matrix = Make(Format::kFp8Channel, 2, 3, data);
  float row[3];
  matrix.scale = per_row.span();
  DecodeRow(matrix, 1, 0, 3, row);
  CHECK_EQ(row[0], -5.0f);
  CHECK_EQ(row[2], -20.0f);
  matrix.scale = per_tensor.span();
  DecodeRow(matrix, 1, 1, 2, row);
  CHECK_EQ(row[0], -14.0f);
  CHECK_EQ(row[1], -28.0f);
}

TEST(bytes_with_a_sign_scale_by_row_or_all_at_once) {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 512; ++code) codes.push_back(static_cast<uint8_t>(code));
  const std::vector<float> two = {3, 0.37f}, one = {7};
  const Odd data(codes), per_row(two), per_tensor(one);
  Matrix matrix = Make(Format::kInt8Channel, 2, 256, data);
  float row[256];
  for (int64_t r = 0; r < 2; ++r) {
    for (const bool all : {false, true}) {
      matrix.scale = all ? per_tensor.span() : per_row.span();
      DecodeRow(matrix, r, 0, 256, row);
      for (int c = 0; c < 256; ++c) {
        CHECK_EQ(row[c], static_cast<float>(c < 128 ? c : c - 256) * (all ? 7 : two[static_cast<size_t>(r)]));
      }
    }
  }
}

TEST(mxfp4_takes_the_low_nibble_first_and_a_scale_for_32_columns) {
  const int64_t rows = 2, cols = 64;
  std::vector<uint8_t> packed, scales = {127, 128, 0, 130};
  for (int i = 0; i < rows * cols / 2; ++i) packed.push_back(uint8_t(i * 37 + 1));
  const Odd data(packed), scale(scales);
  Matrix matrix = Make(Format::kMxfp4, rows, cols, data);
  matrix.scale = scale.span();
  matrix.scale_dtype = DType::kU8;
  for (int64_t r = 0; r < rows; ++r) {
    float row[64];
    DecodeRow(matrix, r, 0, cols, row);
    for (int64_t c = 0; c < cols; ++c) {
      const uint8_t byte = packed[r * 32 + c / 2];
      const uint8_t code = c % 2 == 0 ? byte & 15 : byte >> 4;
      const double expected = std::ldexp(FloatFromE2m1(code), scales[r * 2 + c / 32] - 127);
      CHECK(row[c] == expected);
    }
  }
}

// A row's columns together are what each is by itself (which is how a matrix with steps is read), from any column on.
TEST(parts_of_rows_decode_as_single_columns_do) {
  std::mt19937 rng(1);
  for (const Format format : {Format::kBF16, Format::kF16, Format::kF32, Format::kFp8Block, Format::kFp8Channel,
                              Format::kInt8Channel, Format::kMxfp4}) {
    constexpr int64_t kRows = 5, kCols = 320;
    const test::Source source = test::RandomMatrix(format, kRows, kCols, &rng);
    Matrix stepped = source.matrix;
    stepped.row_step = kCols;
    stepped.col_step = 1;
    DecodeRow(source.matrix, 0, kCols, 0, nullptr);  // a rank that has no columns
    for (const auto& [col, count] : {std::pair{0, 320}, {0, 1}, {31, 2}, {17, 200}, {128, 128}, {319, 1}}) {
      for (int64_t row = 0; row < kRows; ++row) {
        std::vector<float> got(static_cast<size_t>(count)), want(got.size());
        DecodeRow(source.matrix, row, col, count, got.data());
        DecodeRow(stepped, row, col, count, want.data());
        CHECK_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST(sizes_on_disk) {
  CHECK_EQ(StoredBytes(Format::kBF16, 10, 7), 140u);
  CHECK_EQ(StoredBytes(Format::kF16, 10, 7), 140u);
  CHECK_EQ(StoredBytes(Format::kF32, 10, 7), 280u);
  CHECK_EQ(StoredBytes(Format::kFp8Block, 320, 128), 320u * 128 + 3 * 4);
  CHECK_EQ(StoredBytes(Format::kFp8Channel, 320, 128), 320u * 128 + 320 * 4);
  CHECK_EQ(StoredBytes(Format::kMxfp4, 320, 128), 320u * 64 + 320 * 4);
  CHECK_EQ(RowBytes(Format::kMxfp4, 128), 64);
  CHECK_EQ(NameOf(Format::kFp8Block), "fp8-block");
}

}  // namespace
}  // namespace mainarch::quant
