// SPDX-License-Identifier: MIT
//
// The sixteen values of IQ4_NL, times whose block's scale an element is (ggml:
// kvalues_iq4nl). Nothing else, so that kernels of any CPU target may include it (cpu/simd/simd.h).
#ifndef MAINARCH_KERNELS_QUANT_IQ4_NL_H_
#define MAINARCH_KERNELS_QUANT_IQ4_NL_H_

#include <stdint.h>

namespace mainarch::quant {

inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_IQ4_NL_H_
