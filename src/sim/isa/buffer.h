// SPDX-License-Identifier: MIT
//
// Buffer resources (128 bits in four SGPRs): the address of a lane's access and whether it lies
// inside. Shared by MUBUF and MTBUF. Pure functions.
#ifndef MAINARCH_SIM_ISA_BUFFER_H_
#define MAINARCH_SIM_ISA_BUFFER_H_

#include <cstdint>

namespace mainarch::sim::isa {

struct BufferResource {
  explicit BufferResource(const uint32_t words[4]);

  uint64_t base;
  uint32_t stride, records, index_stride;
  bool swizzled, add_tid;
  uint8_t select[4];  // component sources: 0, 1, or 4 to 7 for x to w
  uint8_t number_format, data_format;
};

struct BufferPlace {
  uint64_t address;
  bool outside;
};

// index and offset: of the lane's registers where the instruction uses them, else 0; the
// instruction's own offset is part of `offset`. scalar: the SGPR offset.
BufferPlace PlaceOf(const BufferResource& resource, bool has_index, uint64_t index, uint64_t offset,
                    uint32_t scalar, int lane, uint32_t bytes);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_BUFFER_H_
