// SPDX-License-Identifier: MIT
#include "model/arch/arch.h"

#include <iterator>

#include "absl/strings/str_cat.h"

// One line an architecture: the Arch that its file defines.
#define MAINARCH_ARCHS(ARCH) \
  ARCH(kDeepSeekV3)          \
  ARCH(kGemma3Text)          \
  ARCH(kGlm4Moe)             \
  ARCH(kGptOss)              \
  ARCH(kGranite)             \
  ARCH(kLlama)               \
  ARCH(kMimoV2Flash)         \
  ARCH(kMinimaxM2)           \
  ARCH(kMinistral)           \
  ARCH(kMistral)             \
  ARCH(kMixtral)             \
  ARCH(kOlmo2)               \
  ARCH(kOlmo3)               \
  ARCH(kPhi3)                \
  ARCH(kQwen2)               \
  ARCH(kQwen2Moe)            \
  ARCH(kQwen3)               \
  ARCH(kQwen35MoeText)       \
  ARCH(kQwen35Text)          \
  ARCH(kQwen3Moe)            \
  ARCH(kQwen3Next)           \
  ARCH(kSmolLm3)

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
    for (const absl::string_view other : arch->other_types) {
      if (!other.empty() && other == model_type) return arch;
    }
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
