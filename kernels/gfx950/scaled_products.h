// SPDX-License-Identifier: MIT
//
// Of the decoder's kernels those that only this chip has: MXFP4 by MXFP8 (Taken::kScaled).
#ifndef MAINARCH_KERNELS_GFX950_SCALED_PRODUCTS_H_
#define MAINARCH_KERNELS_GFX950_SCALED_PRODUCTS_H_

#include "kernels/ops/experts_any.h"
#include "kernels/ops/experts_reduce.h"
#include "kernels/ops/matmul_reduce.h"
#include "kernels/ops/tall_scaled.h"

namespace mainarch::kernels {

using MatmulMxfp4Scaled = Matmul<TileFormat::kMxfp4, false, Taken::kScaled>;
using GateUpMxfp4Scaled = Matmul<TileFormat::kMxfp4, true, Taken::kScaled>;
using GateUpMxfp4AnyScaled = GateUpAny<TileFormat::kMxfp4, Taken::kScaled>;
using ExpertsMxfp4Scaled = Experts<TileFormat::kMxfp4, Taken::kScaled>;
using ExpertsMxfp4AnyScaled = ExpertsAny<TileFormat::kMxfp4, Taken::kScaled>;
using MatmulReduceMxfp4Scaled = MatmulReduce<TileFormat::kMxfp4, Taken::kScaled>;
using ExpertsReduceMxfp4Scaled = ExpertsReduce<TileFormat::kMxfp4, Taken::kScaled>;
using ExpertsReduceMxfp4AnyScaled = ExpertsReduce<TileFormat::kMxfp4, Taken::kScaled, true>;
KERNEL(matmul_mxfp4_scaled, MatmulMxfp4Scaled, "vgpr=152 sgpr=112 lds=4096")
KERNEL(gate_up_mxfp4_scaled, GateUpMxfp4Scaled, "vgpr=160 sgpr=112 lds=4096")
KERNEL(gate_up_mxfp4_any_scaled, GateUpMxfp4AnyScaled, "vgpr=168 sgpr=112 lds=4096")
KERNEL(experts_mxfp4_scaled, ExpertsMxfp4Scaled, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_mxfp4_any_scaled, ExpertsMxfp4AnyScaled, "vgpr=256 sgpr=112 lds=23632")
KERNEL(matmul_reduce_mxfp4_scaled, MatmulReduceMxfp4Scaled, "vgpr=152 sgpr=112 lds=4096")
KERNEL(experts_reduce_mxfp4_scaled, ExpertsReduceMxfp4Scaled, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_mxfp4_any_scaled, ExpertsReduceMxfp4AnyScaled, "vgpr=256 sgpr=112 lds=23632")

KERNEL(scale_rows, ScaleRows, "vgpr=24 sgpr=56")
MAINARCH_TALL(mxfp4_scaled, kMxfp4, kScaled, "18432", "18432", "40960")

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_GFX950_SCALED_PRODUCTS_H_
