// SPDX-License-Identifier: MIT
#include "isa/chip.h"

namespace mainarch::isa {
namespace {

constexpr const ChipFacts* kChips[] = {&kGfx942, &kGfx950, &kGfx90a};

template <class Predicate>
const ChipFacts* Find(Predicate predicate) {
  for (const ChipFacts* chip : kChips) {
    if (predicate(*chip)) return chip;
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
