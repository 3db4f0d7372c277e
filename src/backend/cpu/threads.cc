// SPDX-License-Identifier: MIT
#include "backend/cpu/threads.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"

namespace mainarch::cpu {
namespace {

constexpr size_t kSmallFile = 4096;

uint32_t AffinityCpus() {
  // Grown until the kernel's mask fits; 1 << 16 CPUs are enough for any machine.
  for (int cpus = 1024; cpus <= 1 << 16; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) return 1;
    const size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    CPU_ZERO_S(size, set);
    const int result = sched_getaffinity(0, size, set);
    const int count = result == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<uint32_t>(count);
  }
  return 1;
}

// "max 100000" or "200000 100000" (quota and period in us): cgroup v2's cpu.max. 0: no limit.
uint32_t QuotaCpus(const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, ' ');
  int64_t quota = 0, period = 0;
  if (!absl::SimpleAtoi(parts.first, &quota) || !absl::SimpleAtoi(parts.second, &period)) return 0;
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<uint32_t>(std::clamp<int64_t>((quota + period - 1) / period, 1, 1 << 16));
}

// The tightest quota of our cgroup and those above it.
uint32_t CgroupCpus() {
  auto membership = ReadWholeFile("/proc/self/cgroup", 1 << 16);
  if (!membership.ok()) return 0;
  uint32_t least = 0;
  for (absl::string_view line : absl::StrSplit(*membership, '\n')) {
    if (line.substr(0, 3) != "0::") continue;  // the v2 hierarchy
    std::string path(line.substr(3));
    while (true) {
      auto text = ReadWholeFile("/sys/fs/cgroup" + path + "/cpu.max", kSmallFile);
      const uint32_t cpus = text.ok() ? QuotaCpus(*text) : 0;
      if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path.empty() || path == "/") break;
      path.resize(slash);
    }
  }
  return least;
}

}  // namespace

uint32_t UsableCpus() {
  const uint32_t affinity = AffinityCpus();
  const uint32_t quota = CgroupCpus();
  return quota == 0 ? affinity : std::min(affinity, quota);
}

}  // namespace mainarch::cpu
