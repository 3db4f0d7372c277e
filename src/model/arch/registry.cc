// SPDX-License-Identifier: MIT
#include "model/arch/arch.h"

#include <iterator>

#include "absl/strings/str_cat.h"

// One line an architecture: the Arch that its file defines.
#define MAINARCH_ARCHS(ARCH) \
  ARCH(kLlama)               \
  ARCH(kQwen3)               \
  ARCH(kQwen3Moe)

namespace mainarch::model {

#define DECLARE(name) extern const Arch name;
MAINARCH_ARCHS(DECLARE)
#undef DECLARE

namespace {

#define POINTER(name) &name,
constexpr const Arch* kArchs[] = {MAINARCH_ARCHS(POINTER)};
#undef POINTER

}  // namespace

const Arch* FindArch(absl::string_view model_type) {
  for (const Arch* arch : kArchs) {
    if (arch->model_type == model_type) return arch;
  }
  return nullptr;
}

std::string ArchNames() {
  std::string names;
  for (const Arch* arch : kArchs) {
    const bool last = arch == kArchs[std::size(kArchs) - 1];
    absl::StrAppend(&names, names.empty() ? "" : last ? " and " : ", ", arch->model_type);
  }
  return names;
}

}  // namespace mainarch::model
