// SPDX-License-Identifier: MIT
//
// Weights of a Program as tiles (kernels/decoder_args.h): which format a rank's share of a weight
// takes on the GPU, and how its bytes are laid out. Pure functions of the checkpoint's bytes;
// placing the result in a GPU's memory is loading.cc's business.
#ifndef MAINARCH_BACKEND_AMDGPU_TILES_H_
#define MAINARCH_BACKEND_AMDGPU_TILES_H_

#include <cstdint>

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

  uint64_t data_bytes() const { return outputs * kernels::TileRowBytes(format, steps); }
  uint64_t scale_bytes() const { return outputs * kernels::TileRowScaleBytes(format, steps); }
};

// The weight's layout is kPanels or kGateUp; its parts end at whole steps, but for the last one
// (CheckTiles). All groups of a weight take one format: FP8 blocks
// that do not fit the tiles, F16, F32, per-channel FP8 and mixed formats become pairs of bf16.
TilePlan PlanTiles(const backend::Weight& weight, int32_t rank, int32_t group);
// Unsupported: parts of a matrix' K that begin within a step, or a K that is too long.
Status CheckTiles(const backend::Weight& weight);

// Writes output tile `output`: TileRowBytes to `data`, TileRowScaleBytes to `scales`.
void PackOutputTile(const TilePlan& plan, uint32_t output, uint8_t* data, uint8_t* scales);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_TILES_H_
