// SPDX-License-Identifier: MIT
//
// Of the decoder's kernels those that only this chip has: MXFP4 and fp8 by MXFP8 (Taken::kScaled), and bf16 by rows in tiles, whose
// ring takes its LDS (Taken::kTiled), as does that of MXFP4 and fp8 of many rows (Taken::kRing).
#ifndef MAINARCH_KERNELS_GFX950_SCALED_PRODUCTS_H_
#define MAINARCH_KERNELS_GFX950_SCALED_PRODUCTS_H_

#include "kernels/ops/experts_any.h"
#include "kernels/ops/experts_reduce.h"
#include "kernels/ops/gate_up_half.h"
#include "kernels/ops/matmul_reduce.h"
#include "kernels/ops/tall_scaled.h"

namespace mainarch::kernels {

// Of few rows. `down`: of experts' down; fp8's takes rows as bf16 (Experts::kDownRounded).
#define MAINARCH_SCALED(suffix, format, down, few, experts)                                                 \
  using MatmulScaled_##suffix = Matmul<TileFormat::format, false, Taken::kScaled>;                          \
  using GateUpScaled_##suffix = Matmul<TileFormat::format, true, Taken::kScaled>;                           \
  using GateUpAnyScaled_##suffix = GateUpAny<TileFormat::format, Taken::kScaled>;                           \
  using ReduceScaled_##suffix = MatmulReduce<TileFormat::format, Taken::kScaled>;                           \
  KERNEL(matmul_##suffix##_scaled, MatmulScaled_##suffix, few)                                              \
  KERNEL(gate_up_##suffix##_scaled, GateUpScaled_##suffix, few)                                             \
  KERNEL(gate_up_##suffix##_any_scaled, GateUpAnyScaled_##suffix, few)                                      \
  MAINARCH_GATE_UP_HALF(suffix##_scaled, format, kScaled)                                                   \
  KERNEL(matmul_reduce_##suffix##_scaled, ReduceScaled_##suffix, few)                                       \
  using ExpertsScaled_##suffix = Experts<TileFormat::format, Taken::kScaled, false, TileFormat::down>;      \
  using ExpertsAnyScaled_##suffix = ExpertsAny<TileFormat::format, Taken::kScaled, TileFormat::down>;       \
  using SumScaled_##suffix = ExpertsReduce<TileFormat::format, Taken::kScaled, false, TileFormat::down>;    \
  using SumAnyScaled_##suffix = ExpertsReduce<TileFormat::format, Taken::kScaled, true, TileFormat::down>;  \
  KERNEL(experts_##suffix##_scaled, ExpertsScaled_##suffix, experts)                                        \
  KERNEL(experts_##suffix##_any_scaled, ExpertsAnyScaled_##suffix, experts)                                 \
  KERNEL(experts_reduce_##suffix##_scaled, SumScaled_##suffix, experts)                                     \
  KERNEL(experts_reduce_##suffix##_any_scaled, SumAnyScaled_##suffix, experts)
MAINARCH_SCALED(mxfp4, kMxfp4, kMxfp4, "vgpr=160 sgpr=112 lds=4096", "vgpr=256 sgpr=112 lds=23632")
MAINARCH_SCALED(fp8, kFp8Blocks, kFp8, "vgpr=112 sgpr=112 lds=4096", "vgpr=256 sgpr=112 lds=14928")
#undef MAINARCH_SCALED

KERNEL(scale_rows, ScaleRows, "vgpr=24 sgpr=56")
MAINARCH_TALL_ALL(mxfp4_scaled, kMxfp4, kScaled, "18432", "18432", "40960")
MAINARCH_TALL(fp8_scaled, kFp8Blocks, kScaled, "18432", "18432")

MAINARCH_TALL_PRODUCTS(mxfp4_ring, kMxfp4, kRing, "147456", "163840")
MAINARCH_TALL_PRODUCTS(fp8_ring, kFp8Blocks, kRing, "163840", "147456")

KERNEL(tile_rows, TileRows, "vgpr=40 sgpr=56")
MAINARCH_TALL_PRODUCTS(bf16_tiled, kBf16, kTiled, "147456", "163840")

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_GFX950_SCALED_PRODUCTS_H_
