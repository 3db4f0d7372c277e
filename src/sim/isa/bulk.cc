// SPDX-License-Identifier: MIT
//
// bulk.inc compiled for every CPU, for AVX2 and for AVX-512.
#include "sim/isa/bulk.h"

#include "sim/isa/buffer.h"
#include "sim/isa/lane_words.h"
#include "sim/isa/lanes.h"

// gcc 12 takes the undefined registers inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define LANE_FILE "sim/isa/bulk.inc"
#define LANE_NAME bulk
#include "sim/isa/lane_codes.inc"

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
