// SPDX-License-Identifier: MIT
//
// Weights of a Program as tiles (kernels/decoder_args.h): which format a rank's share of a weight
// takes on the GPU, and how its bytes are laid out. Pure functions of the checkpoint's bytes;
// placing the result in a GPU's memory is loading.cc's business.
#ifndef MAINARCH_BACKEND_AMDGPU_TILES_H_
#define MAINARCH_BACKEND_AMDGPU_TILES_H_

#include <cstdint>
#include <vector>

#include "backend/program.h"
#include "base/status.h"
#include "kernels/decoder_args.h"

namespace mainarch::amdgpu {

// One rank's share of one group of a weight.
struct TilePlan {
  const backend::Weight* weight = nullptr;
  const backend::WeightSlice* slices = nullptr;
  int32_t slice_count = 0;
  bool gate_up = false;  // tiles of slice 0 and slice 1 alternate
  kernels::TileFormat format = kernels::TileFormat::kBf16;
  int64_t cols = 0;      // real ones
  uint32_t outputs = 0;  // output tiles, both kinds counted
  uint32_t steps = 0;    // along k
  // Parts of k that this rank holds, and where each ends, in steps: kernels::Tiles.
  uint32_t parts = 1;
  uint32_t ends[kernels::kMaxParts] = {};
  int64_t cols_end[kernels::kMaxParts] = {};  // and in columns of the share
  // Of nibbles and bytes, as kernels::Tiles has them.
  kernels::TileCode code = kernels::TileCode::kAffine;
  kernels::TileFactors factors = kernels::TileFactors::kNone;
  uint16_t scale_first = 0;
  uint8_t scale_shift = 0;
  // Of kFp8: bytes are e4m3fnuz, half of what they stand for, for chips that read no other fp8.
  bool fnuz = false;

  // As kernels read it, but for addresses.
  kernels::Tiles Shape() const;
  uint64_t row_bytes() const { return kernels::TileRowBytes(format, steps); }  // of one output tile
  uint64_t row_scale_bytes() const { return kernels::ScaleRowBytes(format, Shape()); }
  uint64_t data_bytes() const { return outputs * row_bytes(); }
  uint64_t scale_bytes() const { return outputs * row_scale_bytes(); }
};

// Where the parts of a rank's share of a K that ranks share end, in steps: each part begins with a whole one, and its
// last may have less than its columns. Of a K whose parts are no multiples of a step the product's input must lie so.
std::vector<uint32_t> PartEnds(const backend::Weight& weight, int32_t rank);

// The weight's layout is kPanels or kGateUp. All groups of a weight take one format. Slices of several
// formats that have codes become bytes; F16, F32, what does not fit the tiles (FP8 blocks, groups of int4 in any order) and other mixed
// formats pairs of bf16.
TilePlan PlanTiles(const backend::Weight& weight, int32_t rank, int32_t group);
// Whether kernels may look at fp8 tiles as kFp8Blocks: on every rank all leaves are of such, each as many, and have one factor a
// block. So it is the same for any number of ranks.
bool TakesFp8Blocks(const backend::Weight& weight);
// Unsupported: parts of a matrix' K that begin within a step, unless the input's do (`apart`), or a K that is too long.
Status CheckTiles(const backend::Weight& weight, bool apart = false);

// Writes output tile `output`: row_bytes to `data`, row_scale_bytes to `scales`.
void PackOutputTile(const TilePlan& plan, uint32_t output, uint8_t* data, uint8_t* scales);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_TILES_H_
