// SPDX-License-Identifier: MIT
//
// Memory instructions of a whole wave at once: when all active lanes reach into one piece of host
// memory (or into LDS, within its bounds), their bytes are moved without looking at each lane. The
// families' own bodies (vmem.cc, ds.cc) say what the instructions mean, lane by lane, and remain in
// use for everything else: other address spaces, faults, and whoever sets a wave's bulk code to
// null.
#ifndef MAINARCH_SIM_ISA_BULK_H_
#define MAINARCH_SIM_ISA_BULK_H_

#include "sim/isa/lanes.h"
#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

struct BulkCode {
  // Each does the instruction whole and returns true, or does nothing and returns false.
  using Access = bool (*)(Wave&, const Op&);
  // By dwords a lane.
  Access load[5], store[5], load_to_lds[5];
  Access load_u8, load_i8, load_u16, load_i16, store_u8, store_u16;
  Access lds_read[5], lds_write[5];
  // Two elements of 1 or 2 dwords a lane at offset0 and offset1 in units of `stride` elements.
  using Access2 = bool (*)(Wave&, const Op&, uint32_t stride);
  Access2 lds_read2[3], lds_write2[3];
  Access bpermute;
};
const BulkCode* BulkCodeOf(LaneCode code);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_BULK_H_
