// SPDX-License-Identifier: MIT
//
// The two tables an ISA folder fills in: what the chip is (Facts) and what we choose for it (Spec).
// Host and device. Code asks a named fact, never which chip it is.
#ifndef MAINARCH_KERNELS_COMMON_CHIP_H_
#define MAINARCH_KERNELS_COMMON_CHIP_H_

#include <stdint.h>

namespace mainarch::kernels {

struct Facts {
  const char* isa;          // "gfx942"
  uint32_t elf_mach;        // EF_AMDGPU_MACH of e_flags
  uint32_t lds_bytes;       // a compute unit's
  uint32_t lds_granule;     // allocation unit of LDS
  uint32_t vgprs_per_simd;  // for one lane, both register files
  uint32_t vgpr_granule;
  uint32_t sgprs_per_simd;
  uint32_t sgpr_granule;
  uint32_t max_waves_per_simd;
  uint32_t simds_per_cu;
  uint32_t max_groups_per_cu;  // of more than one wave: barriers are the limit
  uint32_t xcds;
  uint32_t cus;            // active, whole chip
  bool has_ocp_fp8;        // v_cvt_*fp8* mean e4m3fn; otherwise e4m3fnuz
  bool has_scaled_mfma;    // MX formats in the matrix units
  bool has_cvt_pk_bf16;    // v_cvt_pk_bf16_f32
  uint32_t lds_dma_bytes;  // widest LDS-DMA of one lane
};

struct Spec {
  uint32_t stream_loads_in_flight;  // 16-byte loads a lane keeps open in a streaming read
  uint32_t gemv_rows_per_wave;      // output rows a wave works on at once (VALU)
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_CHIP_H_
