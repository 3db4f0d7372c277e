// SPDX-License-Identifier: MIT
//
// mfma.inc compiled for every CPU and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/matrix_exact.h"
#include "sim/isa/minifloat.h"

// gcc 12 warns about its own AVX-512 headers.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC optimize("O3")
namespace mainarch::sim::isa::mfma_portable {
#include "sim/isa/mfma.inc"
}  // namespace mainarch::sim::isa::mfma_portable

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code twice
#define MAINARCH_AVX512 1
#endif
namespace mainarch::sim::isa::mfma_avx512 {
#include "sim/isa/mfma.inc"
}  // namespace mainarch::sim::isa::mfma_avx512
#undef MAINARCH_AVX512
#pragma GCC pop_options

namespace mainarch::sim::isa {

void AddMfma(LaneCode code, DescriptorMap* map) {
  AddAll(code == LaneCode::kAvx512 ? absl::MakeConstSpan(mfma_avx512::kMfmaTable)
                                   : absl::MakeConstSpan(mfma_portable::kMfmaTable),
         map);
}

}  // namespace mainarch::sim::isa
