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
#define LANE_FILE "sim/isa/mfma.inc"
#define LANE_NAME mfma
#include "sim/isa/lane_codes.inc"

namespace mainarch::sim::isa {

void AddMfma(LaneCode code, DescriptorMap* map) {
  AddAll(code, mfma_portable::kMfmaTable, mfma_avx2::kMfmaTable, mfma_avx512::kMfmaTable, map);
}

void AddSmfmac(LaneCode code, DescriptorMap* map) {
  AddAll(code, mfma_portable::kSmfmacTable, mfma_avx2::kSmfmacTable, mfma_avx512::kSmfmacTable, map);
}

}  // namespace mainarch::sim::isa
