// SPDX-License-Identifier: MIT
//
// AMX in plain code: kernels whose products with bf16 activations are cpu/kernels/tiles.h, and those with 8 bits
// tiles_int8.h, over a stand-in for the matrix unit, written from Intel's definition of TDPBF16PS and TDPBSSD
// (manual, volume 2). It shows on any machine what the tiles do, and where there is AMX, that the stand-in is right.
#ifndef MAINARCH_TESTS_SUPPORT_PLAIN_TILES_H_
#define MAINARCH_TESTS_SUPPORT_PLAIN_TILES_H_

#include "backend/cpu/kernels.h"

namespace mainarch::test {

// `others`, but for products with bf16 activations and many rows of 8 bits. Valid until the next call.
const cpu::Kernels* PlainTileKernels(const cpu::Kernels& others);

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_PLAIN_TILES_H_
