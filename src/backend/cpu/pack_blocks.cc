// SPDX-License-Identifier: MIT
#include "backend/cpu/pack_blocks.h"

#include <cstring>

#include "kernels/quant/gguf_blocks.h"
#include "kernels/quant/k_quants.h"

namespace mainarch::cpu {
namespace {

using backend::RowPlace;
using quant::Format;

constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0fu;
constexpr uint64_t kOnes = 0x0101010101010101u;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint64_t Load8(const uint8_t* at) {
  uint64_t bytes;
  std::memcpy(&bytes, at, sizeof(bytes));
  return bytes;
}

// Columns i to i + 7 of a block, a byte each; i is a multiple of eight.
uint64_t SplitNibbles8(const uint8_t* nibbles, int i) {
  return Load8(nibbles + i % 16) >> (i / 16 * 4) & kLowNibbles;
}
// Of Q5_0 and Q5_1: `at` is the word with the fifth bits of all 32, nibbles lie behind it.
uint64_t Q5Codes8(const uint8_t* at, int i) {
  uint64_t bits = static_cast<uint64_t>(at[i / 8]) * kOnes & 0x8040201008040201u;  // byte j: bit j
  bits = (bits + 0x7f * kOnes) >> 7 & kOnes;                                       // any: 1
  return SplitNibbles8(at + 4, i) | bits << 4;
}
uint64_t KNibbles8(const uint8_t* nibbles, int i) {
  return Load8(nibbles + i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & kLowNibbles;
}
uint64_t Q5KCodes8(const uint8_t* block, int i) {
  return KNibbles8(block + 48, i) | (Load8(block + 16 + i % 32) >> (i / 32) & kOnes) << 4;
}
uint64_t Q6KCodes8(const uint8_t* block, int i) {
  const int half = i / 128, in = i % 128;
  return (Load8(block + 64 * half + in % 64) >> (in / 64 * 4) & kLowNibbles) |
         (Load8(block + 128 + 32 * half + in % 32) >> (in / 32 * 2) & 3 * kOnes) << 4;
}

// The low nibbles of eight codes as the two 16-bit words that a row has in a step: columns 0 2 4 6,
// then 1 3 5 7, from the lowest nibble on.
uint32_t NibbleWords(uint64_t codes) {
  const uint64_t nibbles = codes & kLowNibbles;
  const uint64_t pairs = nibbles | nibbles >> 12;  // bytes 0 1 4 5: columns 0 2, 1 3, 4 6, 5 7
  return static_cast<uint32_t>((pairs & 0xff) | (pairs >> 32 & 0xff) << 8 |
                               (pairs >> 8 & 0xff) << 16 | (pairs >> 40 & 0xff) << 24);
}
// Bits 4 and on of the even codes of eight, `bits` of each, side by side; of the odd ones for codes
// >> 8. The products add shifted copies, whose fourth 16 bits have each code's in its place.
uint32_t HighBits1(uint64_t codes) {
  return static_cast<uint32_t>((codes >> 4 & 0x0001000100010001u) * 0x0001000200040008u >> 48) &
         0xf;
}
uint32_t HighBits2(uint64_t codes) {
  return static_cast<uint32_t>((codes >> 4 & 0x0003000300030003u) * 0x0001000400100040u >> 48) &
         0xff;
}

void StoreWord(uint8_t* at, uint32_t word) { std::memcpy(at, &word, sizeof(word)); }

// Where eight columns of a row go in each kind of panel; `eight` counts from the panel's first
// column.
void PutNibbles(uint64_t codes, int64_t eight, int lane, uint8_t* out) {
  StoreWord(out + 64 * eight + 4 * lane, NibbleWords(codes));
}
void PutFive(uint64_t codes, int64_t eight, int lane, uint8_t* out) {
  uint8_t* step = out + eight / 2 * 160;
  const int second = static_cast<int>(eight % 2);
  StoreWord(step + 64 * second + 4 * lane, NibbleWords(codes));
  step[128 + 2 * lane] |= static_cast<uint8_t>(HighBits1(codes) << (4 * second));
  step[129 + 2 * lane] |= static_cast<uint8_t>(HighBits1(codes >> 8) << (4 * second));
}
void PutSix(uint64_t codes, int64_t eight, int lane, uint8_t* out) {
  uint8_t* step = out + eight * 96;
  StoreWord(step + 4 * lane, NibbleWords(codes));
  step[64 + 2 * lane] = static_cast<uint8_t>(HighBits2(codes));
  step[65 + 2 * lane] = static_cast<uint8_t>(HighBits2(codes >> 8));
}

// The columns of a row, eight at a time: put(codes of them, their place).
template <int kColumns, int kBytes, class Codes, class Put>
void ForEachEight(const uint8_t* row, int64_t col, int64_t cols, Codes codes, Put put) {
  for (int64_t c = 0; c < cols; c += 8) {
    const uint8_t* block = row + (col + c) / kColumns * kBytes;
    put(codes(block, static_cast<int>((col + c) % kColumns)), c / 8);
  }
}

// Bytes with a sign, four columns a step.
void PackInt8(const uint8_t* row, int64_t col, int64_t cols, int lane, uint8_t* out) {
  for (int64_t c = 0; c < cols; c += 4) {
    const int i = static_cast<int>((col + c) % quant::kGgufBlock);
    const int64_t block = (col + c) / quant::kGgufBlock;
    std::memcpy(out + c / 4 * 64 + 4 * lane, row + block * 34 + 2 + i, 4);
  }
}

void PackCodes(Format format, const uint8_t* row, int64_t col, int64_t cols, int lane,
               uint8_t* out) {
  const auto nibbles = [&](uint64_t codes, int64_t eight) { PutNibbles(codes, eight, lane, out); };
  const auto five = [&](uint64_t codes, int64_t eight) { PutFive(codes, eight, lane, out); };
  switch (format) {
    case Format::kQ4_0:
    case Format::kIq4Nl:
      return ForEachEight<32, 18>(
          row, col, cols, [](const uint8_t* b, int i) { return SplitNibbles8(b + 2, i); }, nibbles);
    case Format::kQ4_1:
      return ForEachEight<32, 20>(
          row, col, cols, [](const uint8_t* b, int i) { return SplitNibbles8(b + 4, i); }, nibbles);
    case Format::kMxfp4Blocks:
      return ForEachEight<32, 17>(
          row, col, cols, [](const uint8_t* b, int i) { return SplitNibbles8(b + 1, i); }, nibbles);
    case Format::kQ4K:
      return ForEachEight<256, 144>(
          row, col, cols, [](const uint8_t* b, int i) { return KNibbles8(b + 16, i); }, nibbles);
    case Format::kQ5K:
      return ForEachEight<256, 176>(row, col, cols, Q5KCodes8, five);
    case Format::kQ5_0:
      return ForEachEight<32, 22>(
          row, col, cols, [](const uint8_t* b, int i) { return Q5Codes8(b + 2, i); }, five);
    case Format::kQ5_1:
      return ForEachEight<32, 24>(
          row, col, cols, [](const uint8_t* b, int i) { return Q5Codes8(b + 4, i); }, five);
    case Format::kQ6K:
      return ForEachEight<256, 210>(row, col, cols, Q6KCodes8, [&](uint64_t codes, int64_t eight) {
        PutSix(codes, eight, lane, out);
      });
    default:
      return PackInt8(row, col, cols, lane, out);
  }
}

bool HasAddend(Format format) { return format == Format::kQ4_1 || format == Format::kQ5_1; }

// Of one row, for each block of 32 columns.
void PackScales32(Format format, const uint8_t* row, int64_t col, int64_t cols, int lane,
                  uint8_t* out) {
  const uint32_t bytes = quant::InfoOf(format).block_bytes;
  for (int64_t g = 0; g < cols / quant::kGgufBlock; ++g) {
    const uint8_t* block = row + (col / quant::kGgufBlock + g) * bytes;
    if (format == Format::kMxfp4Blocks) {
      out[g * kLanes + lane] = block[0];
    } else if (HasAddend(format)) {
      std::memcpy(out + (2 * g * kLanes + lane) * 2, block, 2);
      std::memcpy(out + ((2 * g + 1) * kLanes + lane) * 2, block + 2, 2);
    } else {
      std::memcpy(out + (g * kLanes + lane) * 2, block, 2);
    }
  }
}

// Of one row, for each block of 256 columns that the panel touches.
void PackScales256(Format format, const uint8_t* row, int64_t col, int64_t cols, int lane,
                   uint8_t* out) {
  const uint32_t bytes = quant::InfoOf(format).block_bytes;
  const int64_t first = col / quant::kKBlock, last = CeilDivide(col + cols, quant::kKBlock);
  for (int64_t b = first; b < last; ++b) {
    const uint8_t* block = row + b * bytes;
    if (format == Format::kQ6K) {
      std::memcpy(out + 2 * lane, block + 208, 2);
      for (int g = 0; g < 16; ++g) out[32 + 16 * g + lane] = block[192 + g];
      out += quant::kQ6KPanelBytes;
      continue;
    }
    std::memcpy(out + 2 * lane, block, 2);
    const uint16_t least = quant::F16At(block + 2) ^ 0x8000u;
    std::memcpy(out + 32 + 2 * lane, &least, 2);
    for (int g = 0; g < 8; ++g) {
      out[64 + 32 * g + lane] = quant::KScale(block + 4, g);
      out[64 + 32 * g + 16 + lane] = quant::KMin(block + 4, g);
    }
    out += quant::kKPanelBytes;
  }
}

// Eight nibbles of a word as bytes.
uint64_t Spread(uint32_t word) {
  uint64_t bytes = word;
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffffu;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ffu;
  return (bytes | bytes << 4) & kLowNibbles;
}

// Columns col to col + 7.
uint64_t Int4Codes8(const quant::Matrix& matrix, int64_t row, int64_t col) {
  if (matrix.format == Format::kAwq) {  // each in a word of its own
    uint64_t codes = 0;
    for (int i = 0; i < 8; ++i) codes |= uint64_t{quant::Int4Code(matrix, row, col + i)} << (8 * i);
    return codes;
  }
  const int64_t at =
      matrix.format == Format::kGptq ? col / 8 * matrix.rows + row : (row * matrix.cols + col) / 8;
  uint32_t word;
  std::memcpy(&word, matrix.data.data() + 4 * at, sizeof(word));
  return Spread(word);
}

}  // namespace

void PackInt4Groups(const Panels& layout, const RowPlace* rows, int64_t cols, uint8_t* out) {
  float* scales = reinterpret_cast<float*>(out + layout.scale_offset);
  const int64_t groups = CeilDivide(layout.group_offset + cols, layout.group_cols);
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = rows[lane];
    if (from.matrix == nullptr) continue;
    for (int64_t c = 0; c < cols; c += 8) {
      PutNibbles(Int4Codes8(*from.matrix, from.row, from.col + c), c / 8, lane, out);
    }
    const int64_t first = from.col / layout.group_cols;
    for (int64_t g = 0; g < groups; ++g) {
      const quant::Int4Group group = quant::GroupOf(*from.matrix, from.row, first + g);
      scales[2 * g * kLanes + lane] = group.scale;
      scales[(2 * g + 1) * kLanes + lane] =
          -(group.scale * static_cast<float>(group.zero));  // exact
    }
  }
}

size_t SizeInt4Groups(const quant::Matrix& matrix, int64_t col, Panels* layout) {
  layout->group_cols = matrix.block_cols;
  layout->group_offset = static_cast<int32_t>(col % matrix.block_cols);
  return static_cast<size_t>(CeilDivide(layout->group_offset + layout->cols, layout->group_cols)) *
         2 * kLanes * sizeof(float);
}

size_t SizeInt4Order(const quant::Matrix& matrix, Panels* layout) {
  layout->group_cols = matrix.block_cols;
  const int64_t groups = matrix.cols / matrix.block_cols;
  return OrderBytes(layout->cols) + static_cast<size_t>(groups) * 2 * kLanes * sizeof(float);
}

void PackInt4Order(const Panels& layout, const RowPlace* rows, int64_t cols, uint8_t* out) {
  auto* columns = reinterpret_cast<uint16_t*>(out + layout.scale_offset);
  auto* scales = reinterpret_cast<float*>(out + layout.scale_offset + OrderBytes(layout.cols));
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = rows[lane];
    if (from.matrix == nullptr) continue;
    const int64_t groups = from.matrix->cols / layout.group_cols;
    for (int64_t c = 0; c < cols; c += 8) {
      PutNibbles(Int4Codes8(*from.matrix, from.row, from.col + c), c / 8, lane, out);
    }
    // All lanes' matrices have the same.
    for (int64_t c = 0; c < cols; ++c) {
      columns[c] = static_cast<uint16_t>(quant::GroupOfColumn(*from.matrix, from.col + c));
    }
    for (int64_t g = 0; g < groups; ++g) {
      const quant::Int4Group group = quant::GroupOf(*from.matrix, from.row, g);
      scales[2 * g * kLanes + lane] = group.scale;
      scales[(2 * g + 1) * kLanes + lane] = -(group.scale * static_cast<float>(group.zero));
    }
  }
}

int32_t GroupColumns(Format format) {
  return format == Format::kQ6K ? quant::kQ6KGroup : quant::kGgufBlock;
}

size_t SizeBlockScales(Format format, int64_t col, Panels* layout) {
  layout->group_cols = GroupColumns(format);
  if (quant::InfoOf(format).block_cols == quant::kKBlock) {
    layout->group_offset = static_cast<int32_t>(col % quant::kKBlock);
    const int64_t blocks = CeilDivide(layout->group_offset + layout->cols, quant::kKBlock);
    return static_cast<size_t>(blocks) *
           (format == Format::kQ6K ? quant::kQ6KPanelBytes : quant::kKPanelBytes);
  }
  const size_t each = format == Format::kMxfp4Blocks ? 1 : HasAddend(format) ? 4 : 2;
  return static_cast<size_t>(CeilDivide(layout->cols, quant::kGgufBlock)) * kLanes * each;
}

void PackBlocks(Format format, const Panels& layout, const RowPlace* rows, int64_t cols,
                uint8_t* out) {
  const bool large = quant::InfoOf(format).block_cols == quant::kKBlock;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (rows[lane].matrix == nullptr) continue;
    const uint8_t* row = quant::RowData(*rows[lane].matrix, rows[lane].row);
    const int64_t col = rows[lane].col;
    PackCodes(format, row, col, cols, lane, out);
    const auto scales = large ? PackScales256 : PackScales32;
    scales(format, row, col, cols, lane, out + layout.scale_offset);
  }
}

}  // namespace mainarch::cpu
