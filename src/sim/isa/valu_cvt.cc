// SPDX-License-Identifier: MIT
//
// valu_cvt.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#define LANE_FILE "sim/isa/valu_cvt.inc"
#define LANE_NAME valu_cvt
#include "sim/isa/lane_codes.inc"

namespace mainarch::sim::isa {

void AddValuCvt(LaneCode code, DescriptorMap* map) {
  AddAll(code, valu_cvt_portable::kCvtTable, valu_cvt_avx2::kCvtTable, valu_cvt_avx512::kCvtTable, map);
  AddAll(code, valu_cvt_portable::kSrTable, valu_cvt_avx2::kSrTable, valu_cvt_avx512::kSrTable, map);
}

}  // namespace mainarch::sim::isa
