// SPDX-License-Identifier: MIT
//
// What we choose for gfx950. Nothing here has been measured on silicon yet.
#ifndef MAINARCH_KERNELS_GFX950_SPEC_H_
#define MAINARCH_KERNELS_GFX950_SPEC_H_

#include "kernels/common/chip.h"

namespace mainarch::kernels::gfx950 {

inline constexpr Spec kSpec = {
    .stream_loads_in_flight = 8,
    .gemv_rows_per_wave = 2,
};

}  // namespace mainarch::kernels::gfx950

#endif  // MAINARCH_KERNELS_GFX950_SPEC_H_
