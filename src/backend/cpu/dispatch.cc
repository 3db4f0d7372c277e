// SPDX-License-Identifier: MIT
#include "backend/cpu/dispatch.h"

namespace mainarch::cpu {
namespace {

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vbmi");
}

bool HasAvx512Bf16() { return HasAvx512() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace

std::vector<const Kernels*> UsableKernels() {
  std::vector<const Kernels*> usable;
  if (HasAvx512Bf16()) usable.push_back(&avx512_bf16::kKernels);
  if (HasAvx512()) usable.push_back(&avx512::kKernels);
  if (HasAvx2()) usable.push_back(&avx2::kKernels);
  usable.push_back(&portable::kKernels);
  return usable;
}

StatusOr<const Kernels*> ChooseKernels(absl::string_view target) {
  const std::vector<const Kernels*> usable = UsableKernels();
  if (target.empty()) return usable.front();
  std::string names;
  for (const Kernels* kernels : usable) {
    if (target == kernels->name) return kernels;
    absl::StrAppend(&names, names.empty() ? "" : ", ", kernels->name);
  }
  return Error(Code::kUnsupported, "cpu target \"", target, "\": this CPU runs ", names);
}

}  // namespace mainarch::cpu
