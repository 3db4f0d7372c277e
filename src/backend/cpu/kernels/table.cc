// SPDX-License-Identifier: MIT
#include "backend/cpu/kernels/functions.h"

#define MAINARCH_STRING_(x) #x
#define MAINARCH_STRING(x) MAINARCH_STRING_(x)

namespace mainarch::cpu::MAINARCH_TARGET {

const Kernels kKernels = {
    .name = MAINARCH_STRING(MAINARCH_TARGET),
    .matmul = RunMatmul,
    .experts_down = RunExpertsDown,
    .attend = RunAttend,
    .merge_split = RunMergeSplit,
    .scale = RunScale,
    .kv_write = RunKvWrite,
    .rms_norm = RunRmsNorm,
    .norm_rope = RunNormRope,
    .add_tree = RunAddTree,
    .softmax = RunSoftmax,
    .load_bf16 = RunLoadBF16,
    .load_f16 = RunLoadF16,
};

}  // namespace mainarch::cpu::MAINARCH_TARGET
