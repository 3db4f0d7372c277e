// SPDX-License-Identifier: MIT
//
// valu_float.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#define LANE_FILE "sim/isa/valu_float.inc"
#define LANE_NAME valu_float
#include "sim/isa/lane_codes.inc"

namespace mainarch::sim::isa {

void AddValuFloat(LaneCode code, DescriptorMap* map) {
  AddAll(code, valu_float_portable::kFloatTable, valu_float_avx2::kFloatTable, valu_float_avx512::kFloatTable, map);
}

}  // namespace mainarch::sim::isa
