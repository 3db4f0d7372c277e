// SPDX-License-Identifier: MIT
//
// MXFP4 by MXFP4 through the scaled MFMA: the same tiles, quarters and lane layout as Mxfp4Mfma of
// ops/matrix.h, with the hardware doing the widening and the scaling.
#ifndef MAINARCH_KERNELS_GFX950_SCALED_MATRIX_H_
#define MAINARCH_KERNELS_GFX950_SCALED_MATRIX_H_

#include "kernels/ops/matrix.h"
#include "prims.h"

namespace mainarch::kernels {

struct Mxfp4ScaledQuarter {
  using Args = Mxfp4ScaledMatrixArgs;
  template <class Place>
  DEVICE static f32x4 Sum(const Args& args, Place place, uint32_t wave) {
    using isa::MxFormat;
    const uint32_t blocks = args.k / 32, quarter = blocks / kWaves;
    const uint64_t w = uint64_t{place.output} * blocks + wave * quarter + place.part;
    const uint64_t x = uint64_t{place.row} * blocks + wave * quarter + place.part;
    f32x4 acc = {0, 0, 0, 0};
    for (uint32_t i = 0; i < quarter; i += 4) {
      acc = isa::MfmaScaled16x16x128<MxFormat::kFp4, MxFormat::kFp4>(
          isa::Fp4Operand(Stream16(At(args.codes), w + i)),
          isa::Fp4Operand(Load16(At(args.x_codes), x + i)), acc, At(args.scales)[w + i],
          At(args.x_scales)[x + i]);
    }
    return acc;
  }
};
using Mxfp4Scaled = MfmaTiles<Mxfp4ScaledQuarter>;

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_GFX950_SCALED_MATRIX_H_
