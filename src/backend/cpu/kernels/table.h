// SPDX-License-Identifier: MIT
//
// The table of this target's functions, a constant.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TABLE_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TABLE_H_

#include "backend/cpu/kernels/functions.h"

#define MAINARCH_STRING_(x) #x
#define MAINARCH_STRING(x) MAINARCH_STRING_(x)

namespace mainarch::cpu::MAINARCH_TARGET {

static constexpr Kernels kTable = {
    .name = MAINARCH_STRING(MAINARCH_TARGET),
    .matmul = RunMatmul,
    .experts_down = RunExpertsDown,
    .attend = RunAttend,
    .merge_split = RunMergeSplit,
    .scale = RunScale,
    .kv_write = RunKvWrite,
    .hadamard = RunHadamard,
    .rms_norm = RunRmsNorm,
    .gate = RunGate,
    .norm_rope = RunNormRope,
    .add_tree = RunAddTree,
    .softmax = RunSoftmax,
#if defined(MAINARCH_TARGET_avx512) || defined(MAINARCH_TARGET_avx512_bf16)
    .by_columns = RunByColumns,
#else
    .by_columns = nullptr,
#endif
    .delta = RunDelta,
    .conv_silu = RunConvSilu,
    .l2_norm = RunL2Norm,
    .dot = RunDot,
    .silu_gate = RunSiluGate,
    .load_bf16 = RunLoadBF16,
    .load_f16 = RunLoadF16,
#if defined(MAINARCH_TARGET_avx512_bf16) || defined(MAINARCH_TARGET_neon_bf16)
    .matmul_bf16 = RunMatmulBF16,
    .experts_down_bf16 = RunExpertsDownBF16,
    .to_bf16 = RunToBF16,
#else
    .matmul_bf16 = nullptr,
    .experts_down_bf16 = nullptr,
    .to_bf16 = nullptr,
#endif
    .matmul_int8 = RunMatmulInt8,
    .experts_down_int8 = RunExpertsDownInt8,
    .to_int8 = RunToInt8,
    .attend_bf16 = nullptr,
    .may_round = nullptr,
};

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TABLE_H_
