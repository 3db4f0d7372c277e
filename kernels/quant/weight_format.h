// SPDX-License-Identifier: MIT
//
// Formats of weights: what checkpoints hold, what CPUs make of it (panels), what GPUs make of it
// (tiles), and which becomes which: the one place that knows their sizes and what they are called.
// How bytes are packed is cpu/pack.cc's and amdgpu/tiles.cc's business; how they are decoded,
// kernels/quant's.
#ifndef MAINARCH_KERNELS_QUANT_WEIGHT_FORMAT_H_
#define MAINARCH_KERNELS_QUANT_WEIGHT_FORMAT_H_

#include <stdint.h>

namespace mainarch::quant {

// Of a checkpoint's matrix.
enum class Format : uint8_t {
  kBF16,
  kF16,
  kF32,
  kFp8Block,    // e4m3fn, one multiplier per block_rows x block_cols block (HF weight_scale_inv)
  kFp8Channel,  // e4m3fn, one multiplier per row (or one for all rows)
  kMxfp4,       // e2m1 pairs, low nibble first, one e8m0 exponent per 32 columns (Quark)
  // GGUF's blocks, which hold their scales (kernels/quant/gguf_blocks.h).
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kMxfp4Blocks,
  // Four bits, a scale and perhaps a zero point for some columns (kernels/quant/int4_groups.h).
  kInt4Packed,  // compressed-tensors: rows of eight columns a word
  kGptq,        // words of eight columns of a row, side by side
  kAwq,         // words of eight rows of a column
  kNvfp4,       // e2m1 pairs, e4m3fn for 16 columns, one multiplier (kernels/quant/mxfp4.h)
  kInt8Channel,  // bytes with a sign, one multiplier per row, or one for all (compressed-tensors W8A8)
};

// Of a matrix on a CPU (backend/cpu/kernels.h, Panels).
enum class PanelFormat : uint8_t {
  kBF16, kF16, kF32, kFp8, kMxfp4,
  kInt8,    // a scale of fp16 for 32 columns
  kInt4,    // -8 to 7, likewise
  kIq4Nl,   // sixteen values of a table, likewise
  kInt4Min,  // 0 to 15; a scale and an addend of fp32 for some columns
  kQ4_1,    // 0 to 15; a scale and an addend of fp16 for 32 columns
  kQ5_0,    // -16 to 15; a scale of fp16 for 32 columns
  kQ5_1,    // 0 to 31; a scale and an addend of fp16 for 32 columns
  kQ4K,     // 0 to 15; of 256 columns two fp16, of 32 two factors of 6 bits, of scale and of addend
  kQ5K,     // 0 to 31, likewise
  kQ6K,     // -32 to 31; of 256 columns a fp16, of 16 a factor of 8 bits
  kNvfp4,   // e2m1, a scale of e4m3fn for 16 columns, a multiplier of fp32 a row
  kInt8Row,  // bytes with a sign, a scale of fp32 a row
  kInt4Order,  // as kInt4Min, but that each column says which group it is of
  kCount
};

// Of a matrix on a GPU (kernels/decoder_args.h, Tiles).
enum class TileFormat : uint32_t {
  kBf16 = 0,
  kBf16Pair = 1,
  kFp8 = 2,
  kMxfp4 = 3,
  kNibble = 4,  // codes of four bits, with two numbers for 32 columns of a row or more of them
  kByte = 5,    // codes of eight bits, likewise
  // kFp8 as kernels look at it that multiply 128 columns at once: two of its tiles are one. No weight is said to have it.
  kFp8Blocks = 6,
};

// What a code of kNibble or kByte stands for, c, and what the two numbers p and q make of it.
enum class TileCode : uint8_t {
  kAffine,  // p c + q
  kScaled,  // p c; bytes
  kHalves,  // p c in columns 0 to 15 of the 32, q c in the others; bytes
  kE2m1,    // the same of nibbles, c an e2m1
  kIq4Nl,   // p c, c one of sixteen values; nibbles
  kE4m3,    // p c, c an e4m3fn; bytes
  kByTile,  // each output tile says which (bytes)
};

// What p and q are made of, beside the two numbers that steps of a row share: two bytes for each step and
// row, which are the factors of these two.
enum class TileFactors : uint8_t {
  kNone,         // p and q are the two numbers
  kBytes,        // two bytes
  kSignedBytes,  // with a sign
  kE4m3,         // two e4m3fn
  kF16,          // one fp16, the factor of both
};

struct FormatInfo {
  const char* name;  // in JSON and on command lines
  uint32_t element_bits;
  uint32_t scale_bytes;  // of one multiplier as files of this format have it; 0: there is none
  uint32_t scale_rows;   // rows and columns that share one; 0: all
  uint32_t scale_cols;
  PanelFormat panel;
  TileFormat tile;  // where the shape allows it; pairs of bf16 hold any other
  // Columns of a row that lie together with their scales, and their bytes; 0: elements lie alone.
  uint32_t block_cols = 0;
  uint32_t block_bytes = 0;
};
inline constexpr FormatInfo kFormats[] = {
    {"bf16", 16, 0, 0, 0, PanelFormat::kBF16, TileFormat::kBf16},
    {"f16", 16, 0, 0, 0, PanelFormat::kF16, TileFormat::kBf16Pair},
    {"f32", 32, 0, 0, 0, PanelFormat::kF32, TileFormat::kBf16Pair},
    {"fp8-block", 8, 4, 128, 128, PanelFormat::kFp8, TileFormat::kFp8},
    {"fp8-channel", 8, 4, 1, 0, PanelFormat::kFp8, TileFormat::kByte},
    {"mxfp4", 4, 1, 1, 32, PanelFormat::kMxfp4, TileFormat::kMxfp4},
    {"q8_0", 8, 0, 0, 0, PanelFormat::kInt8, TileFormat::kByte, 32, 34},
    {"q4_0", 4, 0, 0, 0, PanelFormat::kInt4, TileFormat::kNibble, 32, 18},
    {"q4_1", 4, 0, 0, 0, PanelFormat::kQ4_1, TileFormat::kNibble, 32, 20},
    {"q5_0", 5, 0, 0, 0, PanelFormat::kQ5_0, TileFormat::kByte, 32, 22},
    {"q5_1", 5, 0, 0, 0, PanelFormat::kQ5_1, TileFormat::kByte, 32, 24},
    {"q4_k", 4, 0, 0, 0, PanelFormat::kQ4K, TileFormat::kNibble, 256, 144},
    {"q5_k", 5, 0, 0, 0, PanelFormat::kQ5K, TileFormat::kByte, 256, 176},
    {"q6_k", 6, 0, 0, 0, PanelFormat::kQ6K, TileFormat::kByte, 256, 210},
    {"iq4_nl", 4, 0, 0, 0, PanelFormat::kIq4Nl, TileFormat::kNibble, 32, 18},
    {"mxfp4-blocks", 4, 0, 0, 0, PanelFormat::kMxfp4, TileFormat::kMxfp4, 32, 17},
    {"int4-packed", 4, 2, 1, 128, PanelFormat::kInt4Min, TileFormat::kNibble},
    {"gptq", 4, 2, 1, 128, PanelFormat::kInt4Min, TileFormat::kNibble},
    {"awq", 4, 2, 1, 128, PanelFormat::kInt4Min, TileFormat::kNibble},
    {"nvfp4", 4, 1, 1, 16, PanelFormat::kNvfp4, TileFormat::kNibble},
    {"int8-channel", 8, 4, 1, 0, PanelFormat::kInt8Row, TileFormat::kByte},
};
inline constexpr uint32_t kFormatCount = sizeof(kFormats) / sizeof(kFormats[0]);

// A panel is sixteen rows by steps of some columns.
struct PanelInfo {
  int32_t step_bytes;
  int32_t step_cols;
  bool bf16_dot;  // a bf16 dot product takes its elements
};
inline constexpr PanelInfo kPanelFormats[] = {
    {64, 2, true},  {64, 2, false}, {128, 2, false}, {64, 4, true},   {64, 8, true},
    {64, 4, true},  {64, 8, true},  {64, 8, true},   {64, 8, true},   {64, 8, true},
    {160, 16, true}, {160, 16, true}, {64, 8, true}, {160, 16, true}, {96, 8, true}, {64, 8, true},
    {64, 4, true},  {64, 8, false}};
static_assert(sizeof(kPanelFormats) / sizeof(kPanelFormats[0]) ==
              static_cast<uint32_t>(PanelFormat::kCount));

// What 256 columns of sixteen rows share in a panel of kQ4K or kQ5K, and in one of kQ6K.
inline constexpr int32_t kKPanelBytes = 2 * 16 * 2 + 8 * 2 * 16;
inline constexpr int32_t kQ6KPanelBytes = 16 * 2 + 16 * 16;

// A tile is sixteen rows by one or more steps of 32 columns.
struct TileInfo {
  uint32_t steps;
  uint32_t bytes;
  uint32_t scale_bytes;  // of kNibble and kByte it depends on the weight (kernels/decoder_args.h, Tiles)
};
inline constexpr TileInfo kTileFormats[] = {{1, 1024, 0}, {1, 2048, 0}, {2, 1024, 8},
                                            {4, 1024, 64}, {4, 1024, 0}, {2, 1024, 0}, {4, 2048, 16}};

constexpr const FormatInfo& InfoOf(Format format) { return kFormats[static_cast<uint32_t>(format)]; }
constexpr const PanelInfo& InfoOf(PanelFormat format) {
  return kPanelFormats[static_cast<uint32_t>(format)];
}
constexpr const TileInfo& InfoOf(TileFormat format) {
  return kTileFormats[static_cast<uint32_t>(format)];
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_WEIGHT_FORMAT_H_
