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
};

// Of a matrix on a CPU (backend/cpu/kernels.h, Panels).
enum class PanelFormat : uint8_t { kBF16, kF16, kF32, kFp8, kMxfp4, kCount };

// Of a matrix on a GPU (kernels/decoder_args.h, Tiles).
enum class TileFormat : uint32_t { kBf16 = 0, kBf16Pair = 1, kFp8 = 2, kMxfp4 = 3 };

struct FormatInfo {
  const char* name;  // in JSON and on command lines
  uint32_t element_bits;
  uint32_t scale_bytes;  // of one multiplier as files of this format have it; 0: there is none
  uint32_t scale_rows;   // rows and columns that share one; 0: all
  uint32_t scale_cols;
  PanelFormat panel;
  TileFormat tile;  // where the shape allows it; pairs of bf16 hold any other
};
inline constexpr FormatInfo kFormats[] = {
    {"bf16", 16, 0, 0, 0, PanelFormat::kBF16, TileFormat::kBf16},
    {"f16", 16, 0, 0, 0, PanelFormat::kF16, TileFormat::kBf16Pair},
    {"f32", 32, 0, 0, 0, PanelFormat::kF32, TileFormat::kBf16Pair},
    {"fp8-block", 8, 4, 128, 128, PanelFormat::kFp8, TileFormat::kFp8},
    {"fp8-channel", 8, 4, 1, 0, PanelFormat::kFp8, TileFormat::kBf16Pair},
    {"mxfp4", 4, 1, 1, 32, PanelFormat::kMxfp4, TileFormat::kMxfp4},
};
inline constexpr uint32_t kFormatCount = sizeof(kFormats) / sizeof(kFormats[0]);

// A panel is sixteen rows by steps of some columns.
struct PanelInfo {
  int32_t step_bytes;
  int32_t step_cols;
  bool bf16_dot;  // a bf16 dot product takes its elements
};
inline constexpr PanelInfo kPanelFormats[] = {
    {64, 2, true}, {64, 2, false}, {128, 2, false}, {64, 4, true}, {64, 8, true}};

// A tile is sixteen rows by one or more steps of 32 columns.
struct TileInfo {
  uint32_t steps;
  uint32_t bytes;
  uint32_t scale_bytes;
};
inline constexpr TileInfo kTileFormats[] = {{1, 1024, 0}, {1, 2048, 0}, {2, 1024, 8}, {4, 1024, 64}};

constexpr const FormatInfo& InfoOf(Format format) { return kFormats[static_cast<uint32_t>(format)]; }
constexpr const PanelInfo& InfoOf(PanelFormat format) {
  return kPanelFormats[static_cast<uint32_t>(format)];
}
constexpr const TileInfo& InfoOf(TileFormat format) {
  return kTileFormats[static_cast<uint32_t>(format)];
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_WEIGHT_FORMAT_H_
