// SPDX-License-Identifier: MIT
//
// mfma.inc and smfmac.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/matrix_exact.h"
#include "sim/isa/minifloat.h"

// gcc 12 warns about its own AVX-512 headers.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC optimize("O3")
namespace mainarch::sim::isa::mfma_portable {
#include "sim/isa/mfma.inc"
#include "sim/isa/smfmac.inc"
}  // namespace mainarch::sim::isa::mfma_portable

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX2 1
#endif
namespace mainarch::sim::isa::mfma_avx2 {
#include "sim/isa/mfma.inc"
#include "sim/isa/smfmac.inc"
}  // namespace mainarch::sim::isa::mfma_avx2
#undef MAINARCH_AVX2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX512 1
#endif
namespace mainarch::sim::isa::mfma_avx512 {
#include "sim/isa/mfma.inc"
#include "sim/isa/smfmac.inc"
}  // namespace mainarch::sim::isa::mfma_avx512
#undef MAINARCH_AVX512
#pragma GCC pop_options

namespace mainarch::sim::isa {

void AddMfma(LaneCode code, DescriptorMap* map) {
  AddAll(code, mfma_portable::kMfmaTable, mfma_avx2::kMfmaTable, mfma_avx512::kMfmaTable, map);
}

void AddSmfmac(LaneCode code, DescriptorMap* map) {
  AddAll(code, mfma_portable::kSmfmacTable, mfma_avx2::kSmfmacTable, mfma_avx512::kSmfmacTable, map);
}

}  // namespace mainarch::sim::isa
