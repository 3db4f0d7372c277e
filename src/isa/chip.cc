// SPDX-License-Identifier: MIT
#include "isa/chip.h"

#include "kernels/gfx942/facts.h"
#include "kernels/gfx950/facts.h"

namespace mainarch::isa {
namespace {

constexpr ChipFacts kChips[] = {
    {.name = "gfx942",
     .gfx_target_version = 90402,
     .elf_mach = kernels::gfx942::kFacts.elf_mach,
     .lds_bytes = kernels::gfx942::kFacts.lds_bytes,
     .lds_granule = kernels::gfx942::kFacts.lds_granule,
     .max_vgprs = kernels::gfx942::kFacts.vgprs_per_simd,
     .has_aql_eop = false,
     .has_ocp_fp8 = kernels::gfx942::kFacts.has_ocp_fp8,
     .system_memory_is_cached = false,
     .has_mfma_precision_switch = false,
     .is_target = true},
    {.name = "gfx950",
     .gfx_target_version = 90500,
     .elf_mach = kernels::gfx950::kFacts.elf_mach,
     .lds_bytes = kernels::gfx950::kFacts.lds_bytes,
     .lds_granule = kernels::gfx950::kFacts.lds_granule,
     .max_vgprs = kernels::gfx950::kFacts.vgprs_per_simd,
     .has_aql_eop = true,
     .has_ocp_fp8 = kernels::gfx950::kFacts.has_ocp_fp8,
     .system_memory_is_cached = true,
     .has_mfma_precision_switch = true,
     .is_target = true},
    // Known so that its objects and nodes can be named; nothing is shipped for it.
    {.name = "gfx90a",
     .gfx_target_version = 90010,
     .elf_mach = 0x3f,
     .lds_bytes = 64 << 10,
     .lds_granule = 512,
     .max_vgprs = 512,
     .has_aql_eop = true,
     .has_ocp_fp8 = false,
     .system_memory_is_cached = false,
     .has_mfma_precision_switch = false,
     .is_target = false},
};

template <class Predicate>
const ChipFacts* Find(Predicate predicate) {
  for (const ChipFacts& chip : kChips) {
    if (predicate(chip)) return &chip;
  }
  return nullptr;
}

}  // namespace

const ChipFacts* ChipByVersion(uint64_t version) {
  return Find([&](const ChipFacts& chip) { return chip.gfx_target_version == version; });
}

const ChipFacts* ChipByName(absl::string_view name) {
  return Find([&](const ChipFacts& chip) { return name == chip.name; });
}

const ChipFacts* ChipByElfMach(uint32_t mach) {
  return Find([&](const ChipFacts& chip) { return chip.elf_mach == mach; });
}

}  // namespace mainarch::isa
