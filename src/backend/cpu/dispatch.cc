// SPDX-License-Identifier: MIT
#include "backend/cpu/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/cpu_features.h"

namespace mainarch::cpu {
namespace {

#if defined(__x86_64__)
[[maybe_unused]] bool HasAvx2() {
  return CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA) &&
         CPU_FEATURE_ACTIVE(F16C);
}

// Alder Lake and later, Sierra Forest, Zen 5: what has no AVX-512 of these.
[[maybe_unused]] bool HasAvx2Vnni() { return HasAvx2() && CPU_FEATURE_ACTIVE(AVX_VNNI); }

[[maybe_unused]] bool HasAvx512() {
  return HasAvx2() && CPU_FEATURE_ACTIVE(AVX512F) && CPU_FEATURE_ACTIVE(AVX512BW) &&
         CPU_FEATURE_ACTIVE(AVX512VL) && CPU_FEATURE_ACTIVE(AVX512DQ) &&
         CPU_FEATURE_ACTIVE(AVX512_VBMI) && CPU_FEATURE_ACTIVE(AVX512_VNNI);
}

[[maybe_unused]] bool HasAvx512Bf16() { return HasAvx512() && CPU_FEATURE_ACTIVE(AVX512_BF16); }

[[maybe_unused]] bool HasAmx() {
  return HasAvx512Bf16() && CPU_FEATURE_ACTIVE(AMX_TILE) && CPU_FEATURE_ACTIVE(AMX_BF16) && CPU_FEATURE_ACTIVE(AMX_INT8);
}
#elif defined(__aarch64__)
// What the kernel says that it and the CPU have (getauxval asks nobody: the dynamic linker keeps it).
[[maybe_unused]] bool HasDot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
[[maybe_unused]] bool HasArmBf16() { return HasDot() && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }
[[maybe_unused]] bool HasI8mm() { return HasArmBf16() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#endif

}  // namespace

std::vector<const Kernels*> UsableKernels() {
  std::vector<const Kernels*> usable;
#if defined(__x86_64__)
#ifndef MAINARCH_WITHOUT_avx512_bf16
  if (HasAmx()) usable.push_back(&amx::kKernels);
  if (HasAvx512Bf16()) usable.push_back(&avx512_bf16::kKernels);
#endif
#ifndef MAINARCH_WITHOUT_avx512
  if (HasAvx512()) usable.push_back(&avx512::kKernels);
#endif
#ifndef MAINARCH_WITHOUT_avx2
#ifndef MAINARCH_WITHOUT_avx2_vnni
  if (HasAvx2Vnni()) usable.push_back(&avx2_vnni::kKernels);
#endif
  if (HasAvx2()) usable.push_back(&avx2::kKernels);
#endif
#elif defined(__aarch64__)
#ifndef MAINARCH_WITHOUT_neon_bf16
#ifndef MAINARCH_WITHOUT_neon_i8mm
  if (HasI8mm()) usable.push_back(&neon_i8mm::kKernels);
#endif
  if (HasArmBf16()) usable.push_back(&neon_bf16::kKernels);
#endif
#ifndef MAINARCH_WITHOUT_neon_dot
  if (HasDot()) usable.push_back(&neon_dot::kKernels);
#endif
#ifndef MAINARCH_WITHOUT_neon
  usable.push_back(&neon::kKernels);
#endif
#endif
#ifndef MAINARCH_WITHOUT_portable
  usable.push_back(&portable::kKernels);
#endif
  return usable;
}

StatusOr<const Kernels*> ChooseKernels(absl::string_view target) {
  const std::vector<const Kernels*> usable = UsableKernels();
  if (usable.empty()) {
    return Error(Code::kUnsupported, "this build has no kernels for this CPU (cpu_targets of meson_options.txt)");
  }
  if (target.empty()) return usable.front();
  std::string names;
  for (const Kernels* kernels : usable) {
    if (target == kernels->name) return kernels;
    absl::StrAppend(&names, names.empty() ? "" : ", ", kernels->name);
  }
  return Error(Code::kUnsupported, "cpu target \"", target, "\": this CPU runs ", names);
}

std::string CpuVendor() {
#if defined(__x86_64__)
  unsigned most = 0, words[3] = {};
  // The name stands in ebx, edx, ecx.
  if (__get_cpuid(0, &most, &words[0], &words[2], &words[1]) == 0) return "";
  char name[sizeof(words)];
  std::memcpy(name, words, sizeof(words));
  return std::string(name, sizeof(name));
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_CPUID) == 0) return "";
  uint64_t main_id = 0;  // the kernel reads it for us
  __asm__("mrs %0, midr_el1" : "=r"(main_id));
  return (main_id >> 24 & 0xff) == 'A' ? "Arm" : "";
#else
  return "";
#endif
}

std::string CpuNameOf(absl::string_view cpuinfo) {
  // By Arm's main ID register: maker, part.
  static constexpr struct {
    absl::string_view maker, part, name;
  } kCores[] = {
      {"0x41", "0xd08", "Arm Cortex-A72"},    {"0x41", "0xd0c", "Arm Neoverse N1"}, {"0x41", "0xd40", "Arm Neoverse V1"},
      {"0x41", "0xd49", "Arm Neoverse N2"},   {"0x41", "0xd4f", "Arm Neoverse V2"}, {"0x41", "0xd8e", "Arm Neoverse N3"},
      {"0x41", "0xd83", "Arm Neoverse V3AE"}, {"0x41", "0xd84", "Arm Neoverse V3"}, {"0xc0", "0xac3", "Ampere-1"},
      {"0xc0", "0xac4", "Ampere-1a"},
  };
  absl::string_view maker, part;
  for (absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    const absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, colon));
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (key == "model name" && !value.empty()) return std::string(value);
    if (key == "CPU implementer" && maker.empty()) maker = value;
    if (key == "CPU part" && part.empty()) part = value;
  }
  for (const auto& core : kCores) {
    if (maker == core.maker && part == core.part) return std::string(core.name);
  }
  return maker.empty() ? "CPU" : absl::StrCat("Arm CPU, maker ", maker, ", part ", part);
}

bool RoundingIsFaster(const Kernels& kernels, absl::string_view vendor) {
  if (kernels.matmul_bf16 == nullptr) return false;
  return kernels.may_round != nullptr || vendor == "AuthenticAMD" || vendor == "Arm";
}

size_t NearBytes(absl::string_view vendor) { return vendor == "GenuineIntel" ? kNearBytes : 0; }

}  // namespace mainarch::cpu
