// SPDX-License-Identifier: MIT
//
// Facts of each chip generation that the driver and the loader act on, one named field each; code
// asks for a fact, never for a chip. What one card differs in from another (CUs, clocks, memory)
// comes from the driver's topology, not from here.
#ifndef MAINARCH_ISA_CHIP_H_
#define MAINARCH_ISA_CHIP_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace mainarch::isa {

struct ChipFacts {
  const char* name;              // as in a code object's target: "gfx942"
  uint32_t gfx_target_version;   // as the driver prints it: 90402
  uint32_t elf_mach;             // e_flags [7:0]
  uint32_t lds_bytes;            // most a workgroup may have
  uint32_t lds_granule;          // bytes; the unit of allocation
  uint32_t max_vgprs;            // of a wave, accumulators included
  bool has_aql_eop;              // an AQL queue wants an end-of-pipe buffer
  bool has_ocp_fp8;              // FP8 is OCP; otherwise FNUZ
  bool system_memory_is_cached;  // GTT is NC in the L2 unless allocated uncached
  bool has_mfma_precision_switch;
  bool is_target;  // we ship kernels for it
};

const ChipFacts* ChipByVersion(uint64_t gfx_target_version);  // null: not known
const ChipFacts* ChipByName(absl::string_view name);
const ChipFacts* ChipByElfMach(uint32_t mach);

}  // namespace mainarch::isa

#endif  // MAINARCH_ISA_CHIP_H_
