// SPDX-License-Identifier: MIT
//
// valu_cvt.inc compiled for every CPU and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#pragma GCC optimize("O3")
namespace mainarch::sim::isa::valu_cvt_portable {
#include "sim/isa/valu_cvt.inc"
}  // namespace mainarch::sim::isa::valu_cvt_portable

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code twice
#define MAINARCH_AVX512 1
#endif
namespace mainarch::sim::isa::valu_cvt_avx512 {
#include "sim/isa/valu_cvt.inc"
}  // namespace mainarch::sim::isa::valu_cvt_avx512
#undef MAINARCH_AVX512
#pragma GCC pop_options

namespace mainarch::sim::isa {

void AddValuCvt(LaneCode code, DescriptorMap* map) {
  AddAll(code == LaneCode::kAvx512 ? absl::MakeConstSpan(valu_cvt_avx512::kCvtTable)
                                   : absl::MakeConstSpan(valu_cvt_portable::kCvtTable),
         map);
  AddAll(code == LaneCode::kAvx512 ? absl::MakeConstSpan(valu_cvt_avx512::kSrTable)
                                   : absl::MakeConstSpan(valu_cvt_portable::kSrTable),
         map);
}

}  // namespace mainarch::sim::isa
