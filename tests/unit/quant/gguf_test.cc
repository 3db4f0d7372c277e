// SPDX-License-Identifier: MIT
//
// GGUF's formats: every code at every place of a block, by writers of our own, and random blocks
// against what the `gguf` package makes of them (golden/gguf_goldens.py).
#include <cstring>
#include <random>

#include "file/safetensors.h"
#include "kernels/quant/gguf_blocks.h"
#include "kernels/quant/k_quants.h"
#include "quant/matrix.h"
#include "support/test.h"

namespace mainarch::quant {
namespace {

using test::Context;

struct Case {
  Format format;
  const char* name;
  uint32_t codes;  // how many
};
constexpr Case kCases[] = {
    {Format::kQ8_0, "Q8_0", 256},   {Format::kQ4_0, "Q4_0", 16},
    {Format::kQ4_1, "Q4_1", 16},    {Format::kQ5_0, "Q5_0", 32},
    {Format::kQ5_1, "Q5_1", 32},    {Format::kQ4K, "Q4_K", 16},
    {Format::kQ5K, "Q5_K", 32},     {Format::kQ6K, "Q6_K", 64},
    {Format::kIq4Nl, "IQ4_NL", 16}, {Format::kMxfp4Blocks, "MXFP4", 16},
};

void SetBits(uint8_t* byte, int shift, uint32_t mask, uint32_t value) {
  *byte = static_cast<uint8_t>((*byte & ~(mask << shift)) | (value & mask) << shift);
}

// Puts a code at column i, as the comments of ggml's structures say.
void Put(Format format, uint8_t* block, int i, uint32_t code) {
  const int nibble = i < 16 ? 0 : 4;
  switch (format) {
    case Format::kQ8_0:
      block[2 + i] = static_cast<uint8_t>(code);
      return;
    case Format::kQ4_0:
    case Format::kIq4Nl:
      return SetBits(block + 2 + i % 16, nibble, 15, code);
    case Format::kQ4_1:
      return SetBits(block + 4 + i % 16, nibble, 15, code);
    case Format::kMxfp4Blocks:
      return SetBits(block + 1 + i % 16, nibble, 15, code);
    case Format::kQ5_0:
    case Format::kQ5_1: {
      uint8_t* high = block + (format == Format::kQ5_0 ? 2 : 4);
      SetBits(high + i / 8, i % 8, 1, code >> 4);
      return SetBits(high + 4 + i % 16, nibble, 15, code);
    }
    case Format::kQ4K:
      return SetBits(block + 16 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 15, code);
    case Format::kQ5K:
      SetBits(block + 16 + i % 32, i / 32, 1, code >> 4);
      return SetBits(block + 48 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 15, code);
    case Format::kQ6K:
      SetBits(block + i / 128 * 64 + i % 64, i % 128 / 64 * 4, 15, code);
      return SetBits(block + 128 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 3, code >> 4);
    default:
      return;
  }
}

// A block whose scale is 0.5, and where it has an addend -3 (which a dmin of 0.25 times 12 is), its
// factors 5 for all groups.
std::vector<uint8_t> Frame(Format format, std::mt19937* rng) {
  std::vector<uint8_t> block(InfoOf(format).block_bytes);
  for (uint8_t& b : block) b = static_cast<uint8_t>((*rng)());
  const auto half = [&](size_t at, float value) {
    const uint16_t code = F16FromFloat(value);
    std::memcpy(block.data() + at, &code, 2);
  };
  half(format == Format::kQ6K ? 208 : 0, 0.5f);
  if (format == Format::kMxfp4Blocks) block[0] = 126;
  if (format == Format::kQ4_1 || format == Format::kQ5_1) half(2, -3);
  if (format == Format::kQ6K) std::fill_n(block.begin() + 192, 16, uint8_t{0x100 - 5});
  if (format != Format::kQ4K && format != Format::kQ5K) return block;
  half(2, 0.25f);
  // Scales 5 and mins 12 of six bits: those of groups 4 to 7 have their upper bits with the first
  // four.
  for (int g = 0; g < 4; ++g) {
    block[static_cast<size_t>(4 + g)] = 5;
    block[static_cast<size_t>(8 + g)] = 12;
    block[static_cast<size_t>(12 + g)] = 5 | 12 << 4;
  }
  return block;
}

double Definition(Format format, uint32_t code) {
  constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  constexpr int kIq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const double q = code;
  switch (format) {
    case Format::kQ8_0:
      return 0.5 * (q < 128 ? q : q - 256);
    case Format::kQ4_0:
      return 0.5 * (q - 8);
    case Format::kQ5_0:
      return 0.5 * (q - 16);
    case Format::kQ4_1:
    case Format::kQ5_1:
      return 0.5 * q - 3;
    case Format::kQ4K:
    case Format::kQ5K:
      return 2.5 * q - 3;
    case Format::kQ6K:
      return -2.5 * (q - 32);
    case Format::kIq4Nl:
      return 0.5 * kIq4[code];
    case Format::kMxfp4Blocks:
      return 0.5 * kE2m1[code];
    default:
      return 0;
  }
}

Matrix RowOf(Format format, const std::vector<uint8_t>& bytes) {
  Matrix matrix;
  matrix.format = format;
  matrix.rows = 1;
  matrix.cols =
      static_cast<int64_t>(bytes.size() / InfoOf(format).block_bytes * InfoOf(format).block_cols);
  matrix.data = bytes;
  return matrix;
}

TEST(every_code_at_every_place_of_a_block_is_what_its_format_says) {
  std::mt19937 rng(1);
  for (const Case& one : kCases) {
    for (int i = 0; i < static_cast<int>(InfoOf(one.format).block_cols); ++i) {
      for (uint32_t code = 0; code < one.codes; ++code) {
        std::vector<uint8_t> block = Frame(one.format, &rng);
        Put(one.format, block.data(), i, code);
        float value = 0;
        DecodeRow(RowOf(one.format, block), 0, i, 1, &value);
        CHECK(value == Definition(one.format, code));
      }
    }
  }
}

TEST(factors_of_six_bits_lie_where_the_format_says) {
  for (int g = 0; g < 8; ++g) {
    for (uint32_t value = 0; value < 64; ++value) {
      uint8_t factors[12];
      for (int fill : {0, 0xff}) {
        std::memset(factors, fill, sizeof(factors));
        if (g < 4) {
          SetBits(factors + g, 0, 63, value);
        } else {
          SetBits(factors + 4 + g, 0, 15, value);
          SetBits(factors + g - 4, 6, 3, value >> 4);
        }
        CHECK_EQ(KScale(factors, g), value);
        std::memset(factors, fill, sizeof(factors));
        if (g < 4) {
          SetBits(factors + 4 + g, 0, 63, value);
        } else {
          SetBits(factors + 4 + g, 4, 15, value);
          SetBits(factors + g, 6, 3, value >> 4);
        }
        CHECK_EQ(KMin(factors, g), value);
      }
    }
  }
}

TEST(random_blocks_are_what_the_gguf_package_says) {
  const auto file =
      file::SafetensorsFile::Open(test::SourcePath("tests/golden/data/gguf/blocks.safetensors"));
  CHECK_OK(file);
  const auto find = [&](const std::string& name) -> const file::TensorView& {
    for (const file::TensorView& tensor : file->tensors()) {
      if (tensor.name == name) return tensor;
    }
    return file->tensors()[0];
  };
  for (const Case& one : kCases) {
    const auto& blocks = find(std::string(one.name) + ".blocks");
    const auto& values = find(std::string(one.name) + ".values");
    Matrix matrix = RowOf(one.format, {blocks.bytes.begin(), blocks.bytes.end()});
    matrix.data = blocks.bytes;
    std::vector<float> decoded(static_cast<size_t>(matrix.cols));
    CHECK_EQ(decoded.size() * sizeof(float), values.bytes.size());
    DecodeRow(matrix, 0, 0, matrix.cols, decoded.data());
    size_t differ = 0;
    for (size_t i = 0; i < decoded.size(); ++i) {
      float want;
      std::memcpy(&want, values.bytes.data() + 4 * i, 4);
      differ += decoded[i] != want;
    }
    CHECK_EQ(differ, 0u);
  }
}

TEST(paired_rows_are_taken_from_where_they_lie) {
  std::vector<uint8_t> bytes(16 * 4);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    const float value = static_cast<float>(i / 4);
    std::memcpy(bytes.data() + i, &value, 4);
  }
  Matrix matrix;
  matrix.format = Format::kF32;
  matrix.rows = 16;
  matrix.cols = 1;
  matrix.data = bytes;
  matrix.paired_rows = 8;
  // Two heads of eight: the first halves at even places.
  const float want[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  for (int64_t row = 0; row < 16; ++row) {
    float value;
    DecodeRow(matrix, row, 0, 1, &value);
    CHECK_EQ(value, want[row]);
  }
}

}  // namespace
}  // namespace mainarch::quant
