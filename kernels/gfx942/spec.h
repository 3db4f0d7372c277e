// SPDX-License-Identifier: MIT
//
// What we choose for gfx942. Nothing here has been measured on silicon yet.
#ifndef MAINARCH_KERNELS_GFX942_SPEC_H_
#define MAINARCH_KERNELS_GFX942_SPEC_H_

#include "kernels/common/chip.h"

namespace mainarch::kernels::gfx942 {

inline constexpr Spec kSpec = {
    .stream_loads_in_flight = 8,
    .gemv_rows_per_wave = 2,
};

}  // namespace mainarch::kernels::gfx942

#endif  // MAINARCH_KERNELS_GFX942_SPEC_H_
