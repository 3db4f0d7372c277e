// SPDX-License-Identifier: MIT
//
// vop3p.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#pragma GCC optimize("O3")
namespace mainarch::sim::isa::vop3p_portable {
#include "sim/isa/vop3p.inc"
}  // namespace mainarch::sim::isa::vop3p_portable

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX2 1
#endif
namespace mainarch::sim::isa::vop3p_avx2 {
#include "sim/isa/vop3p.inc"
}  // namespace mainarch::sim::isa::vop3p_avx2
#undef MAINARCH_AVX2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX512 1
#endif
namespace mainarch::sim::isa::vop3p_avx512 {
#include "sim/isa/vop3p.inc"
}  // namespace mainarch::sim::isa::vop3p_avx512
#undef MAINARCH_AVX512
#pragma GCC pop_options

namespace mainarch::sim::isa {

void AddVop3p(LaneCode code, DescriptorMap* map) {
  AddAll(code, vop3p_portable::kVop3pTable, vop3p_avx2::kVop3pTable, vop3p_avx512::kVop3pTable, map);
}

}  // namespace mainarch::sim::isa
