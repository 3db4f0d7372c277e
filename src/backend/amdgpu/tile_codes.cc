// SPDX-License-Identifier: MIT
#include "backend/amdgpu/tile_codes.h"

#include <algorithm>

#include "kernels/decoder_args.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/gguf_blocks.h"
#include "kernels/quant/k_quants.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::amdgpu {
namespace {

using quant::Format;
using quant::Matrix;
using quant::TileCode;
using quant::TileFactors;
using quant::TileFormat;

constexpr int64_t kStep = kernels::kStepColumns;

bool IsInt4Groups(Format format) {
  return format == Format::kInt4Packed || format == Format::kGptq || format == Format::kAwq;
}

// One number for a row, or for all.
bool IsByRow(Format format) {
  return format == Format::kInt8Channel || format == Format::kFp8Channel;
}

// Where an element of a format of blocks lies.
struct InBlock {
  const uint8_t* block;
  int i;  // of the block's columns
};
InBlock BlockAt(const Matrix& matrix, int64_t row, int64_t col) {
  const quant::FormatInfo& info = quant::InfoOf(matrix.format);
  return {quant::RowData(matrix, row) + col / info.block_cols * info.block_bytes,
          static_cast<int>(col % info.block_cols)};
}

uint8_t Byte(int value) { return static_cast<uint8_t>(value); }

// A code that stands for code - zero, in a byte: the difference.
uint8_t Shifted(TileFormat tile, uint32_t code, int zero) {
  return tile == TileFormat::kNibble ? static_cast<uint8_t>(code) : Byte(static_cast<int>(code) - zero);
}

// What multiplies the scale of a group to give q of p (code - zero), likewise.
float ShiftOf(TileFormat tile, int zero) {
  return tile == TileFormat::kNibble ? static_cast<float>(-zero) : 0;
}

uint16_t Pack(uint8_t first, uint8_t second) { return static_cast<uint16_t>(first | second << 8); }

uint8_t Nvfp4Code(const Matrix& matrix, int64_t row, int64_t group) {
  const int64_t groups = matrix.cols / quant::kNvfp4Group;
  return group < groups ? matrix.scale[static_cast<size_t>(row * groups + group)] : 0;
}

CodeScale FactorValues(TileFactors kind, uint16_t bits) {
  const auto first = static_cast<uint8_t>(bits), second = static_cast<uint8_t>(bits >> 8);
  switch (kind) {
    case TileFactors::kNone:
      return {1, 1};
    case TileFactors::kBytes:
      return {static_cast<float>(first), static_cast<float>(second)};
    case TileFactors::kSignedBytes:
      return {static_cast<float>(static_cast<int8_t>(first)), static_cast<float>(static_cast<int8_t>(second))};
    case TileFactors::kE4m3:
      return {quant::FloatFromFp8E4m3(first), quant::FloatFromFp8E4m3(second)};
    case TileFactors::kF16:
      return {quant::FloatFromF16(bits), quant::FloatFromF16(bits)};
  }
  return {};
}

}  // namespace

bool CodesFitSteps(const Matrix& matrix) {
  return !IsInt4Groups(matrix.format) || (matrix.order.empty() && matrix.block_cols % kStep == 0);
}

TileFactors FactorsOf(Format format) {
  switch (format) {
    case Format::kQ4K:
    case Format::kQ5K:
      return TileFactors::kBytes;
    case Format::kQ6K:
      return TileFactors::kSignedBytes;
    case Format::kNvfp4:
      return TileFactors::kE4m3;
    case Format::kQ8_0:
    case Format::kQ4_0:
    case Format::kQ5_0:
    case Format::kIq4Nl:
      return TileFactors::kF16;
    default:
      return TileFactors::kNone;
  }
}

int64_t StepsOfRecord(const Matrix& matrix) {
  const TileFactors factors = FactorsOf(matrix.format);
  if (IsByRow(matrix.format) || factors == TileFactors::kE4m3 || factors == TileFactors::kF16) return 0;
  if (factors != TileFactors::kNone) return quant::kKBlock / kStep;
  if (!IsInt4Groups(matrix.format)) return 1;
  constexpr int64_t kMost = 64;
  const int64_t steps = matrix.block_cols / kStep;
  return std::min(steps & -steps, kMost);
}

int64_t StepsOfScale(const Matrix& matrix) {
  return FactorsOf(matrix.format) == TileFactors::kNone ? StepsOfRecord(matrix) : 1;
}

TileCode CodeOf(Format format, TileFormat tile) {
  const bool nibble = tile == TileFormat::kNibble;
  switch (format) {
    case Format::kQ4_1:
    case Format::kQ5_1:
    case Format::kQ4K:
    case Format::kQ5K:
      return TileCode::kAffine;
    case Format::kQ6K:
      return TileCode::kHalves;
    case Format::kNvfp4:
      return nibble ? TileCode::kE2m1 : TileCode::kHalves;
    case Format::kIq4Nl:
      return nibble ? TileCode::kIq4Nl : TileCode::kScaled;
    case Format::kFp8Channel:
      return TileCode::kE4m3;
    default:
      return nibble ? TileCode::kAffine : TileCode::kScaled;
  }
}

uint8_t CodeAt(const Matrix& matrix, TileFormat tile, int64_t row, int64_t col) {
  const bool nibble = tile == TileFormat::kNibble;
  if (IsInt4Groups(matrix.format)) {
    const int64_t stored = quant::StoredRow(matrix, row);
    const uint32_t code = quant::Int4Code(matrix, stored, col);
    if (nibble) return static_cast<uint8_t>(code);
    const quant::Int4Group group = quant::GroupOf(matrix, stored, quant::GroupOfColumn(matrix, col));
    return Shifted(tile, code, static_cast<int>(group.zero));
  }
  if (IsByRow(matrix.format)) return quant::RowData(matrix, row)[col];
  if (matrix.format == Format::kNvfp4) {
    const uint8_t code = quant::Mxfp4Nibble(quant::RowData(matrix, row), col);
    return nibble ? code : Byte(static_cast<int>(2 * quant::FloatFromE2m1(code)));
  }
  const auto [block, i] = BlockAt(matrix, row, col);
  switch (matrix.format) {
    case Format::kQ8_0:
      return block[2 + i];
    case Format::kQ4_0:
      return Shifted(tile, quant::SplitNibble(block + 2, i), 8);
    case Format::kQ4_1:
      return Byte(static_cast<int>(quant::SplitNibble(block + 4, i)));
    case Format::kQ5_0:
      return Shifted(tile, quant::Q5_0Code(block, i), 16);
    case Format::kQ5_1:
      return Byte(static_cast<int>(quant::Q5_1Code(block, i)));
    case Format::kQ4K:
      return Byte(static_cast<int>(quant::Q4KCode(block, i)));
    case Format::kQ5K:
      return Byte(static_cast<int>(quant::Q5KCode(block, i)));
    case Format::kQ6K:
      return Shifted(tile, quant::Q6KCode(block, i), 32);
    default: {
      const uint32_t code = quant::SplitNibble(block + 2, i);  // IQ4_NL
      return nibble ? Byte(static_cast<int>(code)) : Byte(quant::kIq4NlValues[code]);
    }
  }
}

CodeScale RecordAt(const Matrix& matrix, TileFormat tile, int64_t row, int64_t col) {
  const int64_t stored = quant::StoredRow(matrix, row);
  if (IsByRow(matrix.format)) return {quant::RowScale(matrix, stored), 0};
  if (IsInt4Groups(matrix.format)) {
    const quant::Int4Group group = quant::GroupOf(matrix, stored, quant::GroupOfColumn(matrix, col));
    return {group.scale, group.scale * ShiftOf(tile, static_cast<int>(group.zero))};
  }
  if (matrix.format == Format::kNvfp4) {
    const float factor = matrix.factor * (tile == TileFormat::kByte ? 0.5f : 1.0f);  // bytes: twice an e2m1
    return {factor, factor};
  }
  const uint8_t* block = BlockAt(matrix, row, col).block;
  switch (matrix.format) {
    case Format::kQ4K:
    case Format::kQ5K:
      return {quant::F16ValueAt(block), -quant::F16ValueAt(block + 2)};
    case Format::kQ6K:
      return {quant::F16ValueAt(block + 208), quant::F16ValueAt(block + 208)};
    case Format::kQ4_1:
    case Format::kQ5_1:
      return {quant::F16ValueAt(block), quant::F16ValueAt(block + 2)};
    case Format::kQ4_0:
      return {1, ShiftOf(tile, 8)};
    default:
      return {1, 0};
  }
}

uint16_t FactorsAt(const Matrix& matrix, int64_t row, int64_t col) {
  if (matrix.format == Format::kNvfp4) {
    const int64_t stored = quant::StoredRow(matrix, row), group = col / quant::kNvfp4Group;
    return Pack(Nvfp4Code(matrix, stored, group), Nvfp4Code(matrix, stored, group + 1));
  }
  const auto [block, i] = BlockAt(matrix, row, col);
  switch (FactorsOf(matrix.format)) {
    case TileFactors::kBytes: {
      const int group = i / static_cast<int>(kStep);
      return Pack(quant::KScale(block + 4, group), quant::KMin(block + 4, group));
    }
    case TileFactors::kSignedBytes:
      return Pack(block[192 + i / quant::kQ6KGroup], block[193 + i / quant::kQ6KGroup]);
    default:
      return quant::F16At(block);
  }
}

CodeScale ScaleAt(const Matrix& matrix, TileFormat tile, int64_t row, int64_t col) {
  const CodeScale record = RecordAt(matrix, tile, row, col);
  const TileFactors kind = FactorsOf(matrix.format);
  if (kind == TileFactors::kNone) return record;
  const CodeScale by = FactorValues(kind, FactorsAt(matrix, row, col));
  return {record.p * by.p, record.q * by.q};
}

}  // namespace mainarch::amdgpu
