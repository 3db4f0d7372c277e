// SPDX-License-Identifier: MIT
//
// valu_int.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#define LANE_FILE "sim/isa/valu_int.inc"
#define LANE_NAME valu_int
#include "sim/isa/lane_codes.inc"

namespace mainarch::sim::isa {

void AddValuInt(LaneCode code, DescriptorMap* map) {
  AddAll(code, valu_int_portable::kIntTable, valu_int_avx2::kIntTable, valu_int_avx512::kIntTable, map);
}

}  // namespace mainarch::sim::isa
