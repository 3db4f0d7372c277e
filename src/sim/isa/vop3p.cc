// SPDX-License-Identifier: MIT
//
// vop3p.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#define LANE_FILE "sim/isa/vop3p.inc"
#define LANE_NAME vop3p
#include "sim/isa/lane_codes.inc"

namespace mainarch::sim::isa {

void AddVop3p(LaneCode code, DescriptorMap* map) {
  AddAll(code, vop3p_portable::kVop3pTable, vop3p_avx2::kVop3pTable, vop3p_avx512::kVop3pTable, map);
}

}  // namespace mainarch::sim::isa
