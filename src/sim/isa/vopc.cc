// SPDX-License-Identifier: MIT
//
// vopc.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/minifloat.h"

#define LANE_FILE "sim/isa/vopc.inc"
#define LANE_NAME vopc
#include "sim/isa/lane_codes.inc"

namespace mainarch::sim::isa {

void AddVopc(LaneCode code, DescriptorMap* map) {
  AddAll(code, vopc_portable::kVopcTable, vopc_avx2::kVopcTable, vopc_avx512::kVopcTable, map);
}

}  // namespace mainarch::sim::isa
