// SPDX-License-Identifier: MIT
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

struct Entry {
  absl::string_view model_type;
  ArchFunction build;
};
constexpr Entry kArchs[] = {
    {"qwen3", BuildQwen3},
    {"qwen3_moe", BuildQwen3Moe},
};

}  // namespace

StatusOr<ArchFunction> FindArch(absl::string_view model_type) {
  std::string names;
  for (const Entry& entry : kArchs) {
    if (entry.model_type == model_type) return entry.build;
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.model_type);
  }
  return Error(Code::kUnsupported, "model_type \"", model_type, "\" is not supported; there are ",
               names);
}

}  // namespace mainarch::model
