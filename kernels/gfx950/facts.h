// SPDX-License-Identifier: MIT
//
// What gfx950, MI355X (CDNA4), is.
#ifndef MAINARCH_KERNELS_GFX950_FACTS_H_
#define MAINARCH_KERNELS_GFX950_FACTS_H_

#include "kernels/common/chip.h"

namespace mainarch::kernels::gfx950 {

inline constexpr Facts kFacts = {
    .isa = "gfx950",
    .elf_mach = 0x4f,
    .lds_bytes = 163840,
    .lds_granule = 1280,
    .vgprs_per_simd = 512,
    .vgpr_granule = 8,
    .sgprs_per_simd = 800,
    .sgpr_granule = 16,
    .max_waves_per_simd = 8,
    .simds_per_cu = 4,
    .max_groups_per_cu = 16,
    .xcds = 8,
    .cus = 256,
    .has_ocp_fp8 = true,
    .has_scaled_mfma = true,
    .has_cvt_pk_bf16 = true,
    .lds_dma_bytes = 16,
};

}  // namespace mainarch::kernels::gfx950

#endif  // MAINARCH_KERNELS_GFX950_FACTS_H_
