// SPDX-License-Identifier: MIT
//
// valu_cvt.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#pragma GCC optimize("O3")
namespace mainarch::sim::isa::valu_cvt_portable {
#include "sim/isa/valu_cvt.inc"
}  // namespace mainarch::sim::isa::valu_cvt_portable

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX2 1
#endif
namespace mainarch::sim::isa::valu_cvt_avx2 {
#include "sim/isa/valu_cvt.inc"
}  // namespace mainarch::sim::isa::valu_cvt_avx2
#undef MAINARCH_AVX2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX512 1
#endif
namespace mainarch::sim::isa::valu_cvt_avx512 {
#include "sim/isa/valu_cvt.inc"
}  // namespace mainarch::sim::isa::valu_cvt_avx512
#undef MAINARCH_AVX512
#pragma GCC pop_options

namespace mainarch::sim::isa {

void AddValuCvt(LaneCode code, DescriptorMap* map) {
  AddAll(code, valu_cvt_portable::kCvtTable, valu_cvt_avx2::kCvtTable, valu_cvt_avx512::kCvtTable, map);
  AddAll(code, valu_cvt_portable::kSrTable, valu_cvt_avx2::kSrTable, valu_cvt_avx512::kSrTable, map);
}

}  // namespace mainarch::sim::isa
