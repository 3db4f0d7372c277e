// SPDX-License-Identifier: MIT
//
// What gfx942, MI300X (CDNA3), is.
#ifndef MAINARCH_KERNELS_GFX942_FACTS_H_
#define MAINARCH_KERNELS_GFX942_FACTS_H_

#include "kernels/common/chip.h"

namespace mainarch::kernels::gfx942 {

inline constexpr Facts kFacts = {
    .isa = "gfx942",
    .elf_mach = 0x4c,
    .lds_bytes = 65536,
    .lds_granule = 512,
    .vgprs_per_simd = 512,
    .vgpr_granule = 8,
    .sgprs_per_simd = 800,
    .sgpr_granule = 16,
    .max_waves_per_simd = 8,
    .simds_per_cu = 4,
    .max_groups_per_cu = 16,
    .xcds = 8,
    .cus = 304,
    .has_ocp_fp8 = false,
    .has_scaled_mfma = false,
    .has_cvt_pk_bf16 = false,
    .lds_dma_bytes = 4,
};

}  // namespace mainarch::kernels::gfx942

#endif  // MAINARCH_KERNELS_GFX942_FACTS_H_
