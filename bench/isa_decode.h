// SPDX-License-Identifier: MIT
//
// What a decoder does with one token, as dispatches of shipped kernels on an IsaRig. Random
// weights: it is there to be counted and timed, not to say anything.
#ifndef MAINARCH_BENCH_ISA_DECODE_H_
#define MAINARCH_BENCH_ISA_DECODE_H_

#include <vector>

#include "isa_rig.h"

namespace mainarch::bench {

// Attention of one new token over 2048 cached ones: 8 query heads, 2 key heads of 128.
StatusOr<std::vector<Prepared>> Attention(IsaRig& rig);

// One decode step of a tiny mixture-of-experts model: hidden 256, 4 layers, 8 query and 2 key heads
// of 64, 32 experts of which 4 work (MXFP4, width 256), vocabulary 4096, 256 positions.
StatusOr<std::vector<Prepared>> TinyMoeStep(IsaRig& rig);

}  // namespace mainarch::bench

#endif  // MAINARCH_BENCH_ISA_DECODE_H_
