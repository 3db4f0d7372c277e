// SPDX-License-Identifier: MIT
//
// bulk.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/bulk.h"

#include "sim/isa/buffer.h"
#include "sim/isa/lane_words.h"
#include "sim/isa/lanes.h"

// gcc 12 takes the undefined registers inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC optimize("O3")
namespace mainarch::sim::isa::bulk_portable {
#include "sim/isa/bulk.inc"
}  // namespace mainarch::sim::isa::bulk_portable

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX2 1
#endif
namespace mainarch::sim::isa::bulk_avx2 {
#include "sim/isa/bulk.inc"
}  // namespace mainarch::sim::isa::bulk_avx2
#undef MAINARCH_AVX2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#if !defined(__clang__)  // whose target pragma does not reach lambdas: portable code again
#define MAINARCH_AVX512 1
#endif
namespace mainarch::sim::isa::bulk_avx512 {
#include "sim/isa/bulk.inc"
}  // namespace mainarch::sim::isa::bulk_avx512
#undef MAINARCH_AVX512
#pragma GCC pop_options

namespace mainarch::sim::isa {

const BulkCode* BulkCodeOf(LaneCode code) {
  switch (code) {
    case LaneCode::kAvx512:
      return &bulk_avx512::kBulk;
    case LaneCode::kAvx2:
      return &bulk_avx2::kBulk;
    case LaneCode::kPortable:
      break;
  }
  return &bulk_portable::kBulk;
}

}  // namespace mainarch::sim::isa
