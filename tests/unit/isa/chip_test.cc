// SPDX-License-Identifier: MIT
#include "isa/chip.h"

#include "support/test.h"

namespace mainarch::isa {
namespace {

TEST(a_chip_is_found_by_each_of_its_names) {
  for (const char* name : {"gfx942", "gfx950", "gfx90a"}) {
    const ChipFacts* chip = ChipByName(name);
    CHECK(chip != nullptr);
    CHECK(ChipByVersion(chip->gfx_target_version) == chip);
    CHECK(ChipByElfMach(chip->elf_mach) == chip);
    CHECK_EQ(chip->lds_bytes % chip->lds_granule, 0u);
  }
  CHECK(ChipByName("gfx1100") == nullptr);
  CHECK(ChipByVersion(0) == nullptr);
  CHECK(ChipByElfMach(0) == nullptr);
}

TEST(what_differs_between_the_two_targets) {
  const ChipFacts* a = ChipByName("gfx942");
  const ChipFacts* b = ChipByName("gfx950");
  CHECK(!a->has_ocp_fp8 && b->has_ocp_fp8);
  CHECK(!a->system_memory_is_cached && b->system_memory_is_cached);
  CHECK_EQ(b->lds_bytes, 163840u);
}

}  // namespace
}  // namespace mainarch::isa
