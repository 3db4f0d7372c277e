// SPDX-License-Identifier: MIT
//
// Facts of each chip generation that the driver, the loader and the virtual node act on, one named
// field each; code asks for a fact, never for a chip. What one card differs in from another (CUs,
// clocks, memory) the driver gets from its topology, not from here: the whole GPU's numbers below
// are what the virtual node tells it there.
#ifndef MAINARCH_ISA_CHIP_H_
#define MAINARCH_ISA_CHIP_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/gfx942/facts.h"
#include "kernels/gfx950/facts.h"

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
  bool has_scaled_mfma;          // MX formats in the matrix units
  bool system_memory_is_cached;  // GTT is NC in the L2 unless allocated uncached
  bool has_mfma_precision_switch;
  bool is_target;  // we ship kernels for it
  // Of the whole GPU as it is sold.
  uint32_t xccs;
  uint32_t cus_per_xcc;  // active ones
  uint32_t simds_per_cu;
  uint32_t waves_per_simd;
};

// What the compiler and the kernels know too is theirs to say (kernels/gfx*/facts.h).
constexpr ChipFacts FromKernelFacts(const kernels::Facts& facts) {
  ChipFacts chip = {};
  chip.name = facts.isa;
  chip.elf_mach = facts.elf_mach;
  chip.lds_bytes = facts.lds_bytes;
  chip.lds_granule = facts.lds_granule;
  chip.max_vgprs = facts.vgprs_per_simd;
  chip.has_ocp_fp8 = facts.has_ocp_fp8;
  chip.has_scaled_mfma = facts.has_scaled_mfma;
  chip.is_target = true;
  chip.xccs = facts.xcds;
  chip.cus_per_xcc = facts.cus / facts.xcds;
  chip.simds_per_cu = facts.simds_per_cu;
  chip.waves_per_simd = facts.max_waves_per_simd;
  return chip;
}

constexpr ChipFacts MakeGfx942() {
  ChipFacts chip = FromKernelFacts(kernels::gfx942::kFacts);
  chip.gfx_target_version = 90402;
  return chip;
}

constexpr ChipFacts MakeGfx950() {
  ChipFacts chip = FromKernelFacts(kernels::gfx950::kFacts);
  chip.gfx_target_version = 90500;
  chip.has_aql_eop = true;
  chip.system_memory_is_cached = true;
  chip.has_mfma_precision_switch = true;
  return chip;
}

inline constexpr ChipFacts kGfx942 = MakeGfx942();  // MI300X
inline constexpr ChipFacts kGfx950 = MakeGfx950();  // MI355X
// One die of an MI210. Known so that its objects and nodes can be named; nothing is shipped for it.
inline constexpr ChipFacts kGfx90a = {
    .name = "gfx90a",
    .gfx_target_version = 90010,
    .elf_mach = 0x3f,
    .lds_bytes = 64 << 10,
    .lds_granule = 512,
    .max_vgprs = 512,
    .has_aql_eop = true,
    .has_ocp_fp8 = false,
    .has_scaled_mfma = false,
    .system_memory_is_cached = false,
    .has_mfma_precision_switch = false,
    .is_target = false,
    .xccs = 1,
    .cus_per_xcc = 104,
    .simds_per_cu = 4,
    .waves_per_simd = 8,
};

const ChipFacts* ChipByVersion(uint64_t gfx_target_version);  // null: not known
const ChipFacts* ChipByName(absl::string_view name);
const ChipFacts* ChipByElfMach(uint32_t mach);

}  // namespace mainarch::isa

#endif  // MAINARCH_ISA_CHIP_H_
