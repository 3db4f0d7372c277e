// SPDX-License-Identifier: MIT
//
// What gfx950, MI355X (CDNA4), is: gfx942, but for what is named.
#ifndef MAINARCH_KERNELS_GFX950_FACTS_H_
#define MAINARCH_KERNELS_GFX950_FACTS_H_

#include "kernels/gfx942/facts.h"

namespace mainarch::kernels::gfx950 {

constexpr Facts MakeFacts() {
  Facts f = gfx942::kFacts;
  f.isa = "gfx950";
  f.elf_mach = 0x4f;
  f.lds_bytes = 163840;
  f.lds_granule = 1280;
  f.cus = 256;
  f.has_ocp_fp8 = true;
  f.has_scaled_mfma = true;
  f.has_cvt_pk_bf16 = true;
  f.lds_dma_bytes = 16;
  return f;
}
inline constexpr Facts kFacts = MakeFacts();

}  // namespace mainarch::kernels::gfx950

#endif  // MAINARCH_KERNELS_GFX950_FACTS_H_
